"""From graphs in other formats to the npz format of docs/data.md; nothing read is ever unpickled unsafely."""

"""What the operating system tells of the processor."""

from harness.base import machine


def caches(folder, *sizes):
    for number, (kind, level, size) in enumerate(sizes):
        index = folder / f"index{number}"
        index.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (index / name).write_text(f"{text}\n")
    return folder


def test_the_size_of_a_data_cache(tmp_path):
    found = caches(tmp_path, ("Instruction", 1, "64K"), ("Data", 1, "48K"), ("Unified", 3, "32768K"))
    assert machine.cache_bytes(1, found) == 48 << 10 and machine.cache_bytes(3, found) == 32 << 20
    assert machine.cache_bytes(2, found) == 0 and machine.cache_bytes(1, tmp_path / "none") == 0

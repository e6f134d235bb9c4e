"""What a run's workers run on: devices and the links between them."""

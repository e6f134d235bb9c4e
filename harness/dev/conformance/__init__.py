"""What every system must hold, as a pytest plugin: `halobench check system=NAME`."""

"""Where this checkout or installation is."""

from pathlib import Path

import harness

ROOT = Path(harness.__file__).resolve().parents[1]
CONF = str(ROOT / "conf")

from __future__ import annotations

import sys
from pathlib import Path

PAPER = Path(__file__).resolve().parents[2] / 'examples' / 'paper'
sys.path.insert(0, str(PAPER))

"""What the benchmarks have already: provenance and measurements."""

import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / 'benchmark'
if str(BENCHMARK) not in sys.path:
    sys.path.append(str(BENCHMARK))

from measure import interleave, peak_memory  # noqa: E402
from provenance import environment  # noqa: E402

__all__ = ['environment', 'interleave', 'peak_memory']

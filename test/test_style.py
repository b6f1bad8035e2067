"""Phrases that are always wrong do not come back; `docs/style.md` has the others."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'torch_geometric_gsl'
#: Wrong phrases, each with a better one.
PHRASES = {
    r'(is|are|was|were) asked for': 'is requested',
    r'what stands? for': 'the representation of',
    r'tells? of': 'describe, report',
    r'(has|have) no meaning (where|beside|with|for)': 'is not supported with',
    r'(only|draws?|takes?|keeps?|of) so many': 'this many, at most k',
    r'hears? (its|their) own': 'sees its own label',
    r'one an? (class|draw|edge|line|node|row|sensor|target)': 'one per node',
    r'(is|are|was|were) sought': 'is searched',
    r'at the most': 'at most',
    r'no less than': 'at least',
    r'(cannot|can) be taken apart': 'can be separated',
}
FILES = [
    ROOT / 'README.md',
    ROOT / 'docs/faq.rst',
    *sorted((ROOT / 'docs/guide').glob('*.rst')),
    *sorted((ROOT / 'docs/internals').glob('*.rst')),
    *sorted((ROOT / 'paper/docs').glob('*.rst')),
    *sorted(PACKAGE.rglob('*.py')),
]


def wrong_phrases(text):
    """Find phrases, also across lines; each is followed by a better one."""
    words = re.sub(r'\s+(# )?', ' ', text)
    return [
        f'{match[0]!r}: say {better!r}'
        for phrase, better in PHRASES.items()
        for match in re.finditer(rf'\b{phrase}\b', words, re.IGNORECASE)
    ]


@pytest.mark.parametrize('path', FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_phrases_that_are_always_wrong(path):
    assert wrong_phrases(path.read_text(encoding='utf-8')) == []

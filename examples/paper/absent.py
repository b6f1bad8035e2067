"""What figures lack: the runs that are not there yet, and the commands to make them."""

from __future__ import annotations

import shlex

from config import RunConfig
from experiments import CONTROLS, EXPERIMENTS, Choice
from settings import PRESETS
from store import Store
from trained import has_model
from tuned import RESULTS

WITH_CONTROLS = ('temperature', 'removal')
#: That of the runs whose trained models are shown.
FIRST_SEED = (0,)


def absent_runs(name: str, store: Store, choice: Choice) -> list[str]:
    """What a figure lacks: commands for its runs, and runs that left no model."""
    if name not in EXPERIMENTS:
        return []
    experiment = EXPERIMENTS[name]
    first = choice._replace(
        datasets=choice.datasets or experiment.datasets, seeds=FIRST_SEED
    )
    one_seed = name != 'temperature'
    configs = experiment.configs(first)
    lines = [_command(name, store.missing(configs), choice, one_seed)]
    if name in WITH_CONTROLS:
        controls = EXPERIMENTS['table1'].configs(first._replace(methods=CONTROLS))
        controls = store.missing(controls)
        lines.append(_command('table1', controls, choice, one_seed, CONTROLS))
    for config in configs:
        record = store.record(config)
        if record is not None and not has_model(store, config):
            outcome = record['outcome']
            lines.append(f'{config}: {outcome.get("detail") or outcome["status"]}')
    return [line for line in lines if line]


def _command(
    experiment: str,
    configs: list[RunConfig],
    choice: Choice,
    one_seed: bool,
    methods: tuple[str, ...] = (),
) -> str:
    """The command that makes runs, if there are any to make."""
    if not configs:
        return ''
    words = ['python', 'examples/paper/run.py', experiment, '--datasets']
    words += dict.fromkeys(config.dataset for config in configs)
    words += ['--methods', *methods] if methods else []
    words += ['--seeds', '1'] if one_seed else []
    # Only files have one.
    labels = dict.fromkeys(config.label for config in configs if config.label)
    words += ['--label', *labels] if labels else []
    words += ['--preset', choice.preset] if choice.preset != PRESETS[0] else []
    words += ['--results', str(choice.results)] if choice.results != RESULTS else []
    return shlex.join(words)

import torch

from torch_geometric_gsl.nn.conv.typed_modules import TypedModules, TypedParameters

TYPES = ['training', 'items', 'a.b', 'a#b', 'a|b', '%2E', ':', ('a', 'b|c', 'd'), '']


def test_every_type_has_a_name_that_no_other_has():
    modules = TypedModules({key: torch.nn.Linear(1, 1) for key in TYPES})
    values = TypedParameters({key: torch.nn.Parameter(torch.ones(1)) for key in TYPES})
    assert list(modules.keys()) == list(values.keys()) == TYPES
    assert len(values.values()) == len({*map(id, values.values())}) == len(TYPES)
    assert modules.training is True
    state = modules.state_dict()
    assert len(state) == 2 * len(TYPES)
    twin = TypedModules({key: torch.nn.Linear(1, 1) for key in TYPES})
    twin.load_state_dict(state)
    for key in TYPES:
        assert torch.equal(twin[key].weight, modules[key].weight)
        assert dict(values.items())[key] is values[key]

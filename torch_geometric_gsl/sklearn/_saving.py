"""Save a fitted estimator to a file of plain values and tensors, and restore it.

A file holds the table of training and the parameters of the networks. Names of columns,
labels of rows and values keep their types: strings, numbers, dates, durations, tuples
of them, and those of pandas. Other labels become strings, other values numbers or
strings.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from numbers import Real
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zipfile import ZIP_DEFLATED, BadZipFile
from zoneinfo import ZoneInfo

import numpy as np
import scipy.sparse
import skops.io
import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_device
from torch_geometric_gsl._files import plain_value
from torch_geometric_gsl.ops.generators import GeneratorMode
from torch_geometric_gsl.sklearn._blend import Blend
from torch_geometric_gsl.sklearn._fitting import index_rows, make_network
from torch_geometric_gsl.sklearn._members import Nets, SklearnModels
from torch_geometric_gsl.sklearn._rows import TrainingRows
from torch_geometric_gsl.sklearn._scaling import Scaling
from torch_geometric_gsl.sklearn.table_transformer import TableTransformer

# The only type of a fitted scikit-learn model that skops does not know.
_TRUSTED = ['sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor']
_PANDAS = ('Interval', 'NAType', 'NaTType', 'Period', 'Timedelta', 'Timestamp')
_DATES = ('datetime', 'date', 'time')
_TYPES: dict[str, Any] = {
    'timedelta': datetime.timedelta,
    'bytes': bytes.fromhex,
    'Decimal': Decimal,
    'UUID': UUID,
}


def packed_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator as plain values."""
    params = plain_value(params)  # Grid searches set NumPy values.
    if isinstance(params['device'], torch.device):
        params['device'] = str(params['device'])
    for name, value in params.items():
        if not isinstance(value, str | int | float | bool | None):
            raise TypeError(
                f"'{name}' must be a plain value to be saved "
                f'(got {type(value).__name__})'
            )
    return params


def packed_state(model: Any) -> dict[str, Any]:
    """Return what a file holds of a fitted estimator, beside its parameters."""
    rows = model._rows
    blend = model._blend
    columns = rows.columns
    table = None
    if rows.encoder is not None:
        table = [[encode(column.name), column.type] for column in rows.encoder.columns_]
        columns = [*columns.values()]
    targets = {name: getattr(model, name) for name in model._TARGETS}
    return {
        'fit': {
            '_losses': blend.losses,
            '_weights': blend.weights,
            '_far_weights': blend.far_weights,
            '_is_constant': blend.is_constant,
            'n_iter_': model.n_iter_,
            'loss_curve_': model.loss_curve_,
            '_target_name': rows.target_name,
            '_num_classes': rows.num_classes,
            '_net_options': model._net_options,
        },
        'device': str(model._device),
        'table': table,
        'rows': _packed(columns, as_text=True),
        'labels': _packed(rows.labels, as_text=True),
        'known_y': rows.known_y,
        'seen': [rows.group, rows.order],
        'constant': torch.from_numpy(blend.constant),
        'members': [_packed_member(member) for member in blend.members],
        'dtype': str(rows.x.dtype),
        'targets': {
            name: _packed(array)
            for name, array in (targets | {'_targets': rows.targets}).items()
        },
    }


def restore_state(model: Any, state: dict[str, Any]) -> None:
    """Set what a file holds on an estimator that was not fitted."""
    fitted = state['fit']
    for name in ('n_iter_', 'loss_curve_', '_net_options'):
        setattr(model, name, fitted[name])
    for name in model._TARGETS:
        setattr(model, name, _unpacked(state['targets'][name]))
    model._device = check_device(state['device'])
    model._rows = rows = _restored_rows(model, state)
    members = [_unpacked_member(member, rows, model) for member in state['members']]
    if not members:
        raise ValueError('it has no member')
    model._blend = Blend(
        members,
        fitted['_weights'],
        fitted['_far_weights'],
        fitted['_losses'],
        state['constant'].numpy(),
        fitted['_is_constant'],
    )
    index_rows(model._blend, rows, model._device)


def _restored_rows(model: Any, state: dict[str, Any]) -> TrainingRows:
    """Encode the rows of training again, and store the names of their columns."""
    x = columns = _unpacked(state['rows'])
    dtype = np.dtype(state['dtype'])
    encoder = None
    if state['table'] is None:
        model.n_features_in_ = x.shape[1]
    else:
        named = [
            (decode(name), values, column_type)
            for (name, column_type), values in zip(state['table'], x, strict=True)
        ]
        names = [name for name, *_ in named]
        columns = dict(zip(names, x, strict=True))
        encoder = TableTransformer().restore(named)
        x = encoder.encode(named).astype(dtype)
        if all(isinstance(name, str) for name in names):
            model.feature_names_in_ = np.array(names, dtype=object)
        model.n_features_in_ = len(names)
    group, order = state['seen']
    return TrainingRows(
        x=x,
        columns=columns,
        labels=_unpacked(state['labels']),
        encoder=encoder,
        targets=_unpacked(state['targets']['_targets']),
        target_name=state['fit']['_target_name'],
        known_y=state['known_y'],
        num_classes=state['fit']['_num_classes'],
        group=group,
        order=order,
    )


def _unpacked_member(packed: dict[str, Any], rows: TrainingRows, model: Any) -> Any:
    scaling = Scaling(packed['scaling']).fit(rows.x)
    if 'models' in packed:
        content = packed['models'].numpy().tobytes()
        try:
            models = skops.io.loads(content, _TRUSTED)
        except BadZipFile as error:
            raise ValueError(f'a member has no models ({error})') from error
        return SklearnModels(packed['name'], scaling, rows.num_classes, models)
    nets = Nets(
        packed['name'],
        packed['kind'],
        scaling,
        rows.num_classes,
        scaling.apply(rows.x),
    )
    nets.far = packed['far']
    for sizes, weights in packed['networks']:
        # Initial parameters come from a separate generator, and are replaced.
        with GeneratorMode(torch.Generator()):
            net = make_network(
                model._network_class,
                rows,
                nets,
                SimpleNamespace(**sizes),
                model._net_options,
            )
        net.load_state_dict(weights)
        nets.models.append(net.to(model._device))
    if not nets.models:
        raise ValueError('a member has no network')
    return nets


def _packed_member(member: Any) -> dict[str, Any]:
    """Return what a file holds of a member."""
    packed = {'name': member.name, 'scaling': member.scaling.scaling}
    if isinstance(member, SklearnModels):
        content = bytearray(
            skops.io.dumps(member.models, compression=ZIP_DEFLATED, compresslevel=6)
        )
        return packed | {'models': torch.frombuffer(content, dtype=torch.uint8)}
    networks = []
    for model in member.models:
        sizes = {
            'hidden_channels': model.hidden_channels,
            'num_blocks': len(model.blocks),
            'dropout': model.dropout,
        }
        # Without the index of rows, in single precision.
        weights = {
            name: value.float().cpu()
            for name, value in model.state_dict().items()
            if not name.startswith('index_')
        }
        networks.append([sizes, weights])
    return packed | {'kind': member.family, 'far': member.far, 'networks': networks}


def _packed(x: Any, as_text: bool = False) -> Any:
    """Convert an array, a sparse matrix or columns to tensors or plain values."""
    if isinstance(x, list):
        return {'columns': [_packed(column, as_text) for column in x]}
    if scipy.sparse.issparse(x):
        x = scipy.sparse.csr_matrix(x)
        tensors = (torch.from_numpy(a) for a in (x.data, x.indices, x.indptr))
        return [*tensors, list(x.shape)]
    if x.dtype.kind in 'bif':
        return torch.from_numpy(np.array(x, order='C'))
    values = x.astype(np.int64) if x.dtype.kind in 'mM' else x
    return [[encode(value, as_text) for value in values.tolist()], str(x.dtype)]


def _unpacked(x: Any) -> Any:
    if isinstance(x, dict):
        return [_unpacked(column) for column in x['columns']]
    if isinstance(x, Tensor):
        return x.numpy()
    *items, dtype = x
    if not isinstance(dtype, str):
        return scipy.sparse.csr_matrix(tuple(p.numpy() for p in items), shape=dtype)
    values = np.empty(len(items[0]), dtype=np.dtype(dtype))
    # One by one: an array of tuples would have two dimensions.
    for position, value in enumerate(items[0]):
        values[position] = decode(value)
    return values


def encode(value: Any, as_text: bool = False) -> Any:
    """Convert a value to plain ones: a list that begins with the name of its type.

    Raises:
        TypeError: If a file cannot hold the type, unless other values become text.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        return ['numpy', str(value.dtype), int(value.astype(np.int64))]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, int, float, bool):
        return value
    name = type(value).__name__
    if isinstance(value, tuple):
        return ['tuple', *(encode(item, as_text) for item in value)]
    if type(value).__module__.partition('.')[0] == 'pandas' and name in _PANDAS:
        return [name, *_encode_pandas(value, name)]
    if name in _DATES:
        # The text has the offset of a time, which has no date for a named zone.
        zone = None if name == 'time' else _named_zone(value)
        return [name, value.isoformat(), zone, getattr(value, 'fold', 0)]
    if isinstance(value, datetime.timedelta):
        return ['timedelta', value.days, value.seconds, value.microseconds]
    if isinstance(value, bytes):
        return ['bytes', value.hex()]
    if isinstance(value, Decimal | UUID):
        return [name, str(value)]
    if as_text and isinstance(value, Real):
        return float(value)  # As a column of fractions is read.
    if as_text or isinstance(value, str):
        return str(value)
    raise TypeError(
        f'a file cannot hold the name or class {value!r} of type {name}: convert it, '
        "such as by '.map(str)'"
    )


def decode(value: Any) -> Any:
    """Restore a value that was encoded."""
    if not isinstance(value, list):
        return value
    name, *values = value
    if name == 'tuple':
        return tuple(map(decode, values))
    if name == 'numpy':
        return np.int64(values[1]).astype(values[0])
    if name in _DATES:
        text, zone, fold = values
        date = getattr(datetime, name).fromisoformat(text)
        return date if zone is None else date.replace(tzinfo=ZoneInfo(zone), fold=fold)
    if name in _PANDAS:
        return _decode_pandas(name, *values)
    return _TYPES[name](*values)


def _named_zone(value: Any) -> str | None:
    """Return the name of a time's zone, of the standard library or of pytz."""
    zone = getattr(value, 'tzinfo', None)
    return getattr(zone, 'key', None) or getattr(zone, 'zone', None)


def _encode_pandas(value: Any, name: str) -> list[Any]:
    if name in ('NAType', 'NaTType'):
        return []
    if name == 'Interval':
        return [encode(value.left), encode(value.right), value.closed]
    if name == 'Period':
        return [value.ordinal, value.freqstr]
    time = value.asm8  # In UTC.
    zone = None  # Its name, or its offset in seconds.
    if getattr(value, 'tzinfo', None) is not None:
        zone = _named_zone(value) or float(value.utcoffset().total_seconds())
    return [str(time.dtype), int(time.astype(np.int64)), zone]


def _decode_pandas(name: str, *values: Any) -> Any:
    import pandas

    if name in ('NAType', 'NaTType'):
        return pandas.NA if name == 'NAType' else pandas.NaT
    if name == 'Interval':
        return pandas.Interval(decode(values[0]), decode(values[1]), values[2])
    if name == 'Period':
        return pandas.Period(ordinal=values[0], freq=values[1])
    time = np.int64(values[1]).astype(values[0])
    zone = values[2]
    if name == 'Timedelta':
        return pandas.Timedelta(time)
    if zone is None:
        return pandas.Timestamp(time)
    if isinstance(zone, str):
        zone = ZoneInfo(zone)
    else:
        zone = datetime.timezone(datetime.timedelta(seconds=zone))
    return pandas.Timestamp(time, tz='UTC').tz_convert(zone)

import builtins
import codecs
import contextlib
import copyreg
import importlib
import io
import os
import pickle
import struct
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torch_geometric_gsl.datasets._io.safe_pickle import load_arrays

MULTIARRAY = importlib.import_module(np.empty(0).__reduce__()[0].__module__)
RECONSTRUCT = np.empty(0).__reduce__()[0]
REBUILD = torch._utils._rebuild_tensor_v2
LOAD = torch.storage._load_from_bytes


class Call:
    """Pickles as a call of a function, with a state to set on the result."""

    def __init__(self, function, *args, state=None):
        self.value = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.value


def read(folder, content):
    path = folder / 'file.pkl'
    path.write_bytes(content)
    return load_arrays(path, ['x'])['x']


def refused(folder, content, text):
    data = content if isinstance(content, bytes) else pickle.dumps({'x': content})
    with pytest.raises(OSError, match=rf"file.pkl' is not a readable .*: .*{text}"):
        read(folder, data)


ARRAY = np.arange(12.0).reshape(3, 4)
VALUES = {
    'float32': ARRAY.astype(np.float32),
    'float64': ARRAY,
    'float16': ARRAY.astype(np.float16),
    'int64': ARRAY.astype(np.int64),
    'uint8': ARRAY.astype(np.uint8),
    'fortran': np.asfortranarray(ARRAY),
    'slice': ARRAY[::2, 1:],
    'big endian': ARRAY.astype('>f4'),
    'vector': np.arange(5),
    'tensor': torch.from_numpy(ARRAY),
    'integer tensor': torch.arange(6).view(2, 3),
    'transposed tensor': torch.from_numpy(ARRAY).t(),
    'sliced tensor': torch.from_numpy(ARRAY)[1:, ::2],
    'tensor with gradient': torch.ones(2, 3).requires_grad_(),
    'list': [1, 2, 3],
    'list of floats': [0.5, 1.5],
    'list of scalars': list(np.arange(3)),
}


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize('value', VALUES.values(), ids=VALUES)
def test_arrays_are_read(tmp_path, value, protocol):
    expected = np.asarray(value.detach() if isinstance(value, torch.Tensor) else value)
    out = read(tmp_path, pickle.dumps({'x': value, 'y': None}, protocol))
    assert out.dtype == expected.dtype.newbyteorder('=')
    assert out.dtype.isnative
    assert out.flags.writeable
    np.testing.assert_array_equal(out, expected)


def test_names_before_numpy_2_are_read(tmp_path):
    content = pickle.dumps({'x': ARRAY}, protocol=2)
    for name in (b'numpy.core', b'numpy._core'):
        old = content.replace(MULTIARRAY.__package__.encode(), name)
        assert b'c' + name + b'.multiarray\n' in old
        np.testing.assert_array_equal(read(tmp_path, old), ARRAY)


def harms(marker):
    path = str(marker)
    return {
        'system': (Call(os.system, f'touch {path}'), rf"'{os.name}.system'"),
        'mkdir': (Call(os.mkdir, path), rf"'{os.name}.mkdir'"),
        'eval': (Call(eval, f"open({path!r}, 'w')"), "'builtins.eval'"),
        'open': (Call(open, path, 'w'), "'_?io.open'"),
        'popen': (Call(subprocess.Popen, ['touch', path]), "'subprocess.Popen'"),
        'getattr': (Call(getattr, np.dtype, 'mro'), "'builtins.getattr'"),
        'import': (Call(importlib.import_module, 'os'), "'importlib.import_module'"),
        'torch.load': (Call(torch.load, path), r"'torch.serialization.load'"),
        'memmap': (Call(np.memmap, path, 'u1', 'w+', 0, 9), "'numpy.memmap'"),
    }


@pytest.mark.parametrize('protocol', [2, 4])
@pytest.mark.parametrize('kind', harms(Path()))
def test_every_other_global_is_refused_by_name(tmp_path, kind, protocol):
    marker = tmp_path / 'executed'
    call, name = harms(marker)[kind]
    content = pickle.dumps({'x': call}, protocol)
    # Old protocols write the names of Python 2.
    name = name.replace('builtins.', '(builtins|__builtin__).')
    name = name.replace('subprocess.', '(subprocess|commands).')
    refused(tmp_path, content, f'the global {name}, which is refused')
    assert not marker.exists()


def test_the_harm_is_real(tmp_path):
    for kind in ('system', 'mkdir', 'memmap'):
        pickle.loads(pickle.dumps(harms(tmp_path / kind)[kind][0]))
        assert (tmp_path / kind).exists(), kind


def nested(value):
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def test_a_payload_inside_a_tensor_is_refused(tmp_path):
    marker = tmp_path / 'executed'
    for kind in ('system', 'mkdir', 'eval'):
        payload = nested({'x': harms(marker)[kind][0]})
        name = r'(builtins\.)?eval' if kind == 'eval' else f'{os.name}.{kind}'
        refused(tmp_path, Call(LOAD, payload), f"the global '{name}' in a tensor")
        twice = nested({'x': Call(LOAD, payload)})
        text = r"the global 'torch.storage._load_from_bytes' in a tensor"
        refused(tmp_path, Call(LOAD, twice), text)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Call(LOAD, nested({'x': harms(marker)['mkdir'][0]}))))
    assert marker.exists()


def array(*state):
    return Call(RECONSTRUCT, np.ndarray, (0,), b'b', state=state)


PAYLOAD = torch.ones(4).__reduce_ex__(2)[1][0].__reduce__()[1][0]


def tensor(offset, size, stride, *rest):
    storage = Call(LOAD, PAYLOAD)
    return Call(REBUILD, storage, offset, size, stride, *(rest or (False, {})))


F4 = np.dtype('f4')
BYTES = b'1234'
SUBARRAY = (3, '<', (F4, (2**40,)), None, None, 4, 4, 0)
ORDER = (3, 'x', None, None, None, -1, -1, 0)


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        # Only numbers are read.
        (np.array([1, 'a'], dtype=object), "an array of type 'O8'"),
        (np.array([Call(eval, 'os.abort()')]), "an array of type 'O8'"),
        (np.zeros(2, dtype=[('a', 'f4')]), "an array of type 'V4'"),
        (np.array(['a']), "an array of type 'U1'"),
        (np.zeros(2, dtype='M8[s]'), "an array of type 'M8'"),
        (np.zeros(2, dtype=complex), "an array of type 'c16'"),
        # Arrays are checked before NumPy sees them.
        (array(1, (2**40,), F4, False, BYTES), r'shape \(1099511627776,\) in 4 bytes'),
        (array(1, (2**70,), F4, False, b''), 'an array of unknown shape'),
        (array(1, (-1, -1), F4, False, BYTES), 'an array of unknown shape'),
        (array(1, (1,) * 9, F4, False, BYTES), 'an array of unknown shape'),
        (array(1, [1], F4, False, BYTES), 'an array of unknown shape'),
        (array(1, (1,), F4, False, [1]), 'an array of unknown content'),
        (array(1, (1,), 'f4', False, BYTES), 'an array of unknown content'),
        (array(1, 2), 'an array of unknown form'),
        (Call(np.ndarray, (2**40,)), 'an array that is made directly'),
        (Call(codecs.encode, 'text', 'rot13'), 'an unknown encoding'),
        (Call(codecs.encode, ['text'], 'latin1'), 'an unknown encoding'),
        (Call(np.dtype, 'O'), "an array of type 'O'"),
        (Call(np.dtype, np.ndarray), 'an array of type'),
        (Call(np.dtype, 'f4', state=SUBARRAY), 'a compound data type'),
        (Call(np.dtype, 'f4', state=(3, '<')), 'a compound data type'),
        (Call(np.dtype, 'f4', state=ORDER), 'an unknown byte order'),
        # Tensors are checked before torch sees them.
        (tensor(0, (10**6, 10**6), (0, 0)), r'of size \(1000000, 1000000\) in 4 val'),
        (tensor(0, (5,), (1,)), r'a tensor of size \(5,\) in 4 values'),
        (tensor(1, (4,), (1,)), r'a tensor of size \(4,\) in 4 values'),
        (tensor(0, (2,), (2**40,)), r'a tensor of size \(2,\) in 4 values'),
        (tensor(-1, (2,), (1,)), 'an array of unknown shape'),
        (tensor(0, (2,), (-1,)), 'an array of unknown shape'),
        (tensor(0, (-2,), (1,)), 'an array of unknown shape'),
        (tensor(0, (2, 2), (1,)), 'a tensor of unknown form'),
        (tensor(0, (2,), (1,), False, {}, {'neg': True}), 'a tensor of unknown form'),
        (Call(REBUILD, ARRAY, 0, (2,), (1,), False, {}), 'a tensor of unknown form'),
        # A storage holds numbers of a known type.
        (Call(LOAD, 'text'), 'a tensor in an unknown format'),
        (Call(LOAD, b'PK'), 'a tensor in an unknown format'),
        (Call(LOAD, nested([1])), 'a tensor stored as list'),
        *((Call(LOAD, damage), '') for damage in (b'junk', b'h\x05', b'\x86.')),
        (torch.ones(2, dtype=torch.bfloat16), 'type torch.bfloat16'),
        (torch.ones(2, dtype=torch.complex64), 'type torch.complex64'),
        (torch.ones(2).to_sparse(), r"global 'torch._utils._rebuild_sp"),
    ],
)
def test_hostile_values(tmp_path, value, text):
    refused(tmp_path, value, text)


def test_a_tensor_cannot_claim_more_values_than_it_brings(tmp_path):
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if obj is Ellipsis:
                return ('storage', torch.FloatStorage, '0', 'cpu', 10**6, None)
            return None

    parts = [torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}]
    stream = io.BytesIO(b''.join(pickle.dumps(part, protocol=2) for part in parts))
    stream.seek(0, io.SEEK_END)
    Pickler(stream, protocol=2).dump(...)
    stream.write(pickle.dumps([], protocol=2))
    value = Call(LOAD, stream.getvalue())
    refused(tmp_path, value, r'a tensor of 1000000 values in \d+ bytes')


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        (b'\x80\x04}r\x40\x42\x0f\x00.', 'a memo index of 1000000'),
        (b'(dp1000000\n.', 'a memo index of 1000000'),
        (b'\x80\x04\x8e' + struct.pack('<Q', 2**50) + b'few.', 'expected .* bytes'),
        (b'\x80\x04\x95' + struct.pack('<Q', 2**50) + b'}.', ''),
        (b'\x80\x05\x97.', 'the instruction NEXT_BUFFER'),
        (b"S'\\d'\n", 'pickle exhausted before seeing STOP'),
        (b'Pname\n.', 'the instruction PERSID'),
        (b'(ios\nsystem\n.', 'the instruction INST'),
        (b'\x80\x02cnumpy\nndarray\n)\x81.', 'NEWOBJ class argument'),
        # Attributes of what is allowed, and a long name.
        (b'\x80\x04\x8c\x05numpy\x8c\x09dtype.mro\x93.', "the global 'numpy.dtype.m"),
        (b'\x80\x02c' + b'm' * 1000 + b'\nname\n.', f"the global '{'m' * 100}'"),
        (b'', ''),
        (b'<html>not found</html>', ''),
        (b'\x80\x04' + b'(' * 100 + b'.', ''),
        (b'I' + b'9' * 100_000 + b'\n.', ''),
    ],
)
def test_hostile_instructions(tmp_path, content, text):
    refused(tmp_path, content, text)


def test_registered_extensions_are_refused(tmp_path):
    copyreg.add_extension('builtins', 'eval', 240)
    try:
        content = b'\x80\x02\x82\xf0.'
        # A cached extension reaches nobody's find_class.
        assert pickle.loads(content) is builtins.eval
        refused(tmp_path, content, 'the instruction EXT1')
    finally:
        copyreg.remove_extension('builtins', 'eval', 240)


@pytest.mark.parametrize(
    'name', [b'torch._utils\n_rebuild_tensor_v2', b'numpy\ndtype', b'numpy\nndarray']
)
def test_allowed_globals_cannot_be_changed(tmp_path, name):
    state = b'N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b'
    before = REBUILD.__defaults__
    refused(tmp_path, b'\x80\x02c' + name + b'\n' + state + b'.', 'a change of Func')
    assert REBUILD.__defaults__ == before


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        ([1], r'must hold a dict \(got list\)'),
        ({'y': ARRAY, 'z': 0, 5: 6}, r"the keys \['x'\] \(got \['y', 'z'\]\)"),
        ({'x': 'text'}, r"'x' in '.*' must be an array, .* numbers \(got str\)"),
        ({'x': None}, r'\(got NoneType\)'),
        ({'x': {'y': ARRAY}}, r'\(got dict\)'),
        ({'x': [[1, 2], [3, 4]]}, r'\(got list\)'),
        ({'x': [True]}, r'\(got list\)'),
        ({'x': [1, 2**63]}, r'\(got list\)'),
        ({'x': [0.5, 2**2000]}, r'\(got list\)'),
        ({'x': Call(RECONSTRUCT, np.ndarray, (0,), b'b')}, r'\(got Array\)'),
        ({'x': np.dtype('f4')}, r'\(got DType\)'),
    ],
)
def test_content_is_checked(tmp_path, content, text):
    with pytest.raises(ValueError, match=text):
        read(tmp_path, pickle.dumps(content))


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_truncation_is_refused(tmp_path, protocol):
    content = pickle.dumps({'x': ARRAY[:1], 'y': torch.ones(2)}, protocol)
    for end in range(len(content)):
        refused(tmp_path, content[:end], '')


@cache
def pickled(kind, protocol):
    """Once: that of a tensor is as long as the number of its address."""
    value = (ARRAY, torch.ones(2), [1, 2], [np.int64(3)])[kind]
    return pickle.dumps({'x': value}, protocol)


@settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_raises_only_what_is_documented(tmp_path, data):
    protocol = data.draw(st.integers(0, pickle.HIGHEST_PROTOCOL))
    content = bytearray(pickled(data.draw(st.integers(0, 3)), protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    # Anything else that is raised fails the test.
    with contextlib.suppress(OSError, ValueError):
        assert read(tmp_path, bytes(content)).dtype.kind in 'iuf'

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
)
from torch import Tensor

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_flag,
    check_option,
    check_positive,
    check_probability,
)
from torch_geometric_gsl._files import plain_value, write_tensors
from torch_geometric_gsl.baselines.knn_gcn import KNNGCN
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.nearest_neighbours import (
    nearest_in_context,
    nearest_neighbours,
)
from torch_geometric_gsl.sklearn._arrays import (
    Scaling,
    read_file,
    to_csr,
    to_tensor,
)
from torch_geometric_gsl.sklearn._training import (
    GRAPHS,
    Result,
    Table,
    choose,
    make_network,
    train,
)
from torch_geometric_gsl.sklearn.table_transformer import (
    TableTransformer,
    check_rows,
)
from torch_geometric_gsl.typing import SampledGraph

# Rows that are held back are worth a look if there are so many.
LEAST_VALIDATION = 4


class GSLEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators that predict from a table and a graph of its rows.

    Its parameters are those of :class:`GSLClassifier`.
    """

    _task = 'classification'

    def __init__(
        self,
        graph: str = 'auto',
        *,
        similarity: str = 'linear',
        k: int = 5,
        num_candidates: int | None = 32,
        tau: float = 1.0,
        initial_scale: float = 10.0,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        learning_rate: float = 0.01,
        weight_decay: float = 5e-4,
        max_iter: int = 300,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 50,
        standardize: bool = True,
        random_state: Any = None,
        device: str = 'cpu',
        verbose: bool = False,
    ) -> None:
        self.graph = graph
        self.similarity = similarity
        self.k = k
        self.num_candidates = num_candidates
        self.tau = tau
        self.initial_scale = initial_scale
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        check_option(self.graph, ('auto', *GRAPHS), 'graph')
        for name in ('k', 'hidden_channels', 'num_layers', 'max_iter'):
            check_count(getattr(self, name), name)
        check_count(self.n_iter_no_change, 'n_iter_no_change')
        if self.num_candidates is not None:
            check_count(self.num_candidates, 'num_candidates')
        for name in ('tau', 'initial_scale', 'learning_rate'):
            check_positive(getattr(self, name), name)
        check_probability(self.dropout, 'dropout')
        check_probability(self.validation_fraction, 'validation_fraction')
        at_least(0, self.weight_decay, 'weight_decay')
        check_flag(self.standardize, 'standardize')
        try:
            torch.empty(0, device=self.device)
        except (AssertionError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"'device' must be one that PyTorch has (got {self.device!r}): {error}"
            ) from error

    def _scaled_rows(self, x: Any) -> Tensor:
        """Return rows as the network sees them."""
        rows = self._scaling.apply(x, self.standardize, self._dtype)
        return to_tensor(rows, self.device)

    def _new_rows(self, X: Any) -> Tensor:
        check_is_fitted(self)
        x = check_rows(self, X, reset=False, accept_sparse='csr')
        reference = self._x
        if reference.layout != torch.strided:
            from scipy.sparse import csr_matrix

            x = csr_matrix(x)
        elif not isinstance(x, np.ndarray):
            x = x.toarray()
        return self._scaled_rows(x)

    def _with_targets(self, x: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """Return checked rows, and their targets as an array."""
        options |= {'accept_sparse': 'csr', 'dtype': [x.dtype], 'estimator': self}
        try:
            x, y = check_X_y(x, y, **options)
            is_text = self._task == 'regression' and y.dtype.kind not in 'biuf'
            return x, y.astype(np.float64) if is_text else y
        except (TypeError, ValueError) as error:
            if 'could not convert' not in str(error) and 'NA is' not in str(error):
                raise
            raise ValueError(f"'y' must hold numbers ({error})") from error

    def _fit(self, x: Any, y: Any, is_known: Any, sample_weight: Any) -> None:
        """Train with each graph that is asked for, and keep the best network.

        Args:
            x (numpy.ndarray or scipy.sparse matrix): The checked rows.
            y (numpy.ndarray): Classes as numbers, or targets as columns.
            is_known (numpy.ndarray): The rows whose target counts.
            sample_weight (numpy.ndarray or None): The weights of rows.
        """
        weight = _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True
        )
        is_known = is_known & (weight > 0)
        if not is_known.any():
            raise ValueError("'sample_weight' must be positive for a row with a label")
        # Only their ratios count, which single precision holds in any unit.
        weight = (weight / weight[is_known].max()).astype(x.dtype)
        random = check_random_state(self.random_state)
        self._dtype = x.dtype
        self._scaling = Scaling.of(x, self.standardize)
        self._x = self._scaled_rows(x)
        train_rows, val_rows = self._split(y, np.flatnonzero(is_known), random)
        table = Table(
            self._x,
            torch.from_numpy(y).to(self.device),
            torch.from_numpy(weight).to(self.device),
            torch.from_numpy(train_rows).to(self.device),
            torch.from_numpy(val_rows).to(self.device),
            self._candidates(),
        )
        graphs = GRAPHS if self.graph == 'auto' else (self.graph,)
        if len(val_rows) == 0:  # Nothing tells them apart.
            graphs = graphs[:1]
        seed = int(random.randint(2**31 - 1))

        def run(graph: str) -> Result:
            return train(graph, self._num_outputs, self._task, table, self, seed)

        self._keep(choose(graphs, run))

    def _num_nearest(self) -> int | None:
        """Return the number of candidates: no fewer than are drawn."""
        number: int | None = self.num_candidates
        return None if number is None else max(number, self.k)

    def _candidates(self) -> Tensor | None:
        """Return edges from the nearest rows, or None for all pairs."""
        number = self._num_nearest()
        self._edges = None
        if number is not None and number < self._x.size(0) - 1:
            self._edges = nearest_neighbours(self._x, number).edge_index
        return self._edges

    def _keep(self, result: Result) -> None:
        self.graph_choice_ = result.graph
        self.validation_loss_ = result.loss
        self.n_iter_ = result.num_epochs
        self._model = result.model
        self.graph_ = self._learned_graph()

    @torch.no_grad()
    def _learned_graph(self) -> Any:
        """Return the graph of the training rows in the first layer, without noise."""
        num_nodes = self._x.size(0)
        if isinstance(self._model, GSLNet):
            graph = self._model.graphs(self._x, self._edges)[0]
        elif isinstance(self._model, KNNGCN):
            graph = self._model.graphs(self._x)[0]
        else:
            edge_index = torch.empty(2, 0, dtype=torch.long)
            graph = SampledGraph(edge_index, torch.empty(0, dtype=self._x.dtype))
        return to_csr(graph, (num_nodes, num_nodes))

    def _split(self, y: Any, known: Any, random: Any) -> tuple[Any, Any]:
        """Hold back some of the rows that are known, of each class if there are any."""
        order = random.permutation(known)
        if self._task != 'classification':
            size = int(self.validation_fraction * len(order))
            size = size if size >= LEAST_VALIDATION else 0
            return np.sort(order[size:]), np.sort(order[:size])
        held = [
            rows[: int(self.validation_fraction * len(rows))]
            for rows in (order[y[order] == c] for c in range(self._num_outputs))
        ]
        # Rows of one class do not tell how good a network is.
        num_held = sum(len(rows) > 0 for rows in held)
        if num_held < 2 or sum(map(len, held)) < LEAST_VALIDATION:
            return np.sort(order), order[:0]
        held_rows = np.concatenate(held)
        return np.sort(np.setdiff1d(order, held_rows)), np.sort(held_rows)

    @torch.no_grad()
    def _outputs(self, X: Any) -> Any:
        rows = self._new_rows(X)
        edges = None
        if isinstance(self._model, GSLNet) and self._edges is not None:
            number = self._num_nearest() or 1
            found = nearest_in_context(rows, self._x, number)
            edges = self._edges, found.edge_index
        out: Tensor = self._model(rows, edges, context=self._x)
        return out.cpu().numpy()

    @torch.no_grad()
    def _own_outputs(self) -> Any:
        """Return what the network makes of the rows of training."""
        edges = self._edges if isinstance(self._model, GSLNet) else None
        out: Tensor = self._model(self._x, edges)
        return out.cpu().numpy()

    # Files

    def save(self, path: str | Path) -> None:
        r"""Write the fitted estimator to a file, which :meth:`load` reads.

        Args:
            path (str or pathlib.Path): The file, which is replaced as a whole.

        Raises:
            TypeError: If a parameter is no plain value.
        """
        check_is_fitted(self)
        params = self.get_params()
        for name, value in params.items():
            params[name] = value = plain_value(value)  # Grids are NumPy's.
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"'{name}' must be a plain value to be saved "
                    f'(got {type(value).__name__})'
                )
        arrays = {'mean': self._scaling.mean, 'width': self._scaling.width}
        content = {
            'estimator': type(self).__name__,
            'params': params,
            'x': self._x.cpu(),
            'scaling': {
                k: v if v is None else torch.from_numpy(v) for k, v in arrays.items()
            },
            'state': {k: v.cpu() for k, v in self._model.state_dict().items()},
            'graph': self.graph_choice_,
            'loss': self.validation_loss_,
            'n_iter': self.n_iter_,
            'num_outputs': self._num_outputs,
            'table': None if self._table is None else self._table.state(),
            'names': getattr(self, 'feature_names_in_', np.array([])).tolist(),
            'targets': self._saved_targets(),
        }
        write_tensors(content, path)

    @classmethod
    def load(cls, path: str | Path) -> Any:
        r"""Read an estimator that :meth:`save` wrote; nothing in the file is executed.

        Args:
            path (str or pathlib.Path): The file.

        Raises:
            OSError: If the file holds no saved estimator, or a damaged one.
            ValueError: If it is one of another class.
        """
        content = read_file(path, cls.__name__)
        try:
            return cls._restored(content)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise OSError(
                f"'{path}' holds a {cls.__name__} that cannot be restored: {error}"
            ) from error

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> Any:
        self = cls(**content['params'])
        self._check_parameters()
        mean, width = (
            None if value is None else value.numpy()
            for value in content['scaling'].values()
        )
        self._scaling = Scaling(mean, width)
        self._x = content['x'].to(self.device)
        self._dtype = torch.empty(0, dtype=self._x.dtype).numpy().dtype
        self._num_outputs = content['num_outputs']
        state = content['table']
        self._table = None if state is None else TableTransformer.restored(state)
        table_width = self._x.size(1) if state is None else len(state['columns'])
        self.n_features_in_ = table_width
        if content['names']:
            self.feature_names_in_ = np.array(content['names'], dtype=object)
        self._restore_targets(content['targets'])
        self._candidates()
        empty = torch.empty(0)
        table = Table(self._x, empty, empty, empty, empty)
        args = content['graph'], self._num_outputs, self._task, table, self
        model = make_network(*args).to(self._x)
        model.load_state_dict(content['state'])
        self._keep(
            Result(content['graph'], model.eval(), content['loss'], content['n_iter'])
        )
        return self

# Made by .ci/stubs from the module: edit that, not this.
# ruff: noqa: F403, I001
from . import _C as _C
from . import _core_check as _core_check
from . import amp as amp
from . import autograd as autograd
from . import backends as backends
from . import cpu as cpu
from . import cuda as cuda
from . import debug as debug
from . import nn as nn
from . import optim as optim
from . import random as random
from . import return_types as return_types
from . import serialization as serialization
from . import special as special
from . import utils as utils
from ._C import Generator as Generator
from ._C import Size as Size
from ._C import Tensor as Tensor
from ._C import _amp_foreach_non_finite_check_and_unscale_ as _amp_foreach_non_finite_check_and_unscale_
from ._C import _amp_update_scale_ as _amp_update_scale_
from ._C import as_tensor as as_tensor
from ._C import asarray as asarray
from ._C import autocast_decrement_nesting as autocast_decrement_nesting
from ._C import autocast_increment_nesting as autocast_increment_nesting
from ._C import can_cast as can_cast
from ._C import clear_autocast_cache as clear_autocast_cache
from ._C import default_generator as default_generator
from ._C import device as device
from ._C import dtype as dtype
from ._C import finfo as finfo
from ._C import from_dlpack as from_dlpack
from ._C import from_numpy as from_numpy
from ._C import frombuffer as frombuffer
from ._C import get_autocast_dtype as get_autocast_dtype
from ._C import get_default_dtype as get_default_dtype
from ._C import get_float32_matmul_precision as get_float32_matmul_precision
from ._C import get_num_threads as get_num_threads
from ._C import iinfo as iinfo
from ._C import is_autocast_cache_enabled as is_autocast_cache_enabled
from ._C import is_autocast_enabled as is_autocast_enabled
from ._C import is_grad_enabled as is_grad_enabled
from ._C import is_inference_mode_enabled as is_inference_mode_enabled
from ._C import manual_seed as manual_seed
from ._C import promote_types as promote_types
from ._C import result_type as result_type
from ._C import set_autocast_cache_enabled as set_autocast_cache_enabled
from ._C import set_autocast_dtype as set_autocast_dtype
from ._C import set_autocast_enabled as set_autocast_enabled
from ._C import set_default_dtype as set_default_dtype
from ._C import set_float32_matmul_precision as set_float32_matmul_precision
from ._C import set_num_threads as set_num_threads
from ._C import tensor as tensor
from ._C.dtypes import *
from ._C.functions import *
from ._functions import *
from ._functions_random import embedding_renorm_ as embedding_renorm_
from ._functions_random import multinomial as multinomial
from ._functions_random import normal as normal
from ._tensor_str import set_printoptions as set_printoptions
from .amp import GradScaler as GradScaler
from .amp import autocast as autocast
from .autograd import enable_grad as enable_grad
from .autograd import inference_mode as inference_mode
from .autograd import no_grad as no_grad
from .autograd import set_grad_enabled as set_grad_enabled
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import seed as seed
from .random import set_rng_state as set_rng_state
from .serialization import load as load
from .serialization import save as save

__version__: str

"""Names that modules here lack and PyTorch's have,
with what to do instead: module -> (names or patterns, cure) pairs, the first that
fits counts. ``Tensor`` stands for methods and attributes of tensors.
"""

from __future__ import annotations

_QUANTISED = "16-bit training is what there is: autocast; quantise in PyTorch"
_SPARSE = "tensors are dense: use index_select, scatter_add or scipy.sparse on the NumPy side"
_SCRIPT = "there is no TorchScript and no graph here; call the model as it is"
_LIBRARY = "it is an entry of a GPU or vendor library: use the function of nn.functional that it implements"
_SYMBOLIC = "sizes are Python ints here"
_STORAGE = (
    "storages are no objects here: tensors share memory with .numpy(), and data_ptr() tells where it is; in place of safetensors.torch, "
    "which needs them, use ampnative.serialization.save_safetensors and load_safetensors"
)
_INTERNAL = "it is internal to PyTorch"
_PYTHON = "import it from Python's library"
_DTYPE = "the dtypes are bool, uint8, int8 to int64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex ones"
_GRAPH = "the ops run as they are called; there are no graphs of kernels to capture"
_HARDWARE = "the device is emulated: there is no such hardware or driver"
_FUNCTIONAL = "use autograd.functional, or loop over the batch and stack the results; autograd.grad gives derivatives"
_SELECTIVE = "utils.checkpoint computes all of its function again; checkpoint smaller parts to keep what is between them"
_OVERRIDES = "subclass Tensor or Module instead"
_PROFILER = "use time.perf_counter, or ampnative.debug for a report of the ops and their dtypes"
_FLASH = "attention is made of products and a softmax, there is no kernel to choose"
_ONE_DEVICE = "there is one device and one process: call the module, or the optimizer, as it is"
_LOAD = "files hold no pickled objects and no storages, so there is nothing to allow, to map or to look up: leave it out"
_REPORT = "ampnative info tells what is there"
_GRAD_OF_CONV = "use autograd.grad of the convolution"
_FUNCTIONAL_STEP = "use the class of the optimizer; its step is the function"
_SHAPES = "tensors keep their number of elements: use new_empty, view, or cat"
_STRIDED_SCATTER = "write into a view of a copy: out = x.clone(); out.as_strided(size, stride, offset).copy_(src)"

NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("vmap jvp vjp", _FUNCTIONAL),
        ("cond", "use a Python if"),
        ("while_loop", "use a Python while"),
        ("sparse_* *spmm *smm hspmm saddmm dsmm sspaddmm resize_as_sparse_ *crow_indices* *col_indices* *row_indices* "
         "values_copy indices_copy", _SPARSE),
        ("*_copy", "call the method without _copy, and .clone()"),
        ("quantize_* quantized_* q_* qint* quint* qscheme fbgemm_* per_channel_* per_tensor_* fake_quantize_* "
         "fused_moving_avg_* int_repr "
         "dequantize choose_qparams_* empty_quantized Q*Storage", _QUANTISED),
        ("*Storage StorageBase storage from_file", _STORAGE),
        ("miopen_* mkldnn_* cudnn_* batch_norm_* native_* affine_grid_generator", _LIBRARY),
        ("sym_* Sym*", _SYMBOLIC),
        ("binary_cross_entropy_with_logits ctc_loss kl_div *_embedding_loss margin_ranking_loss poisson_nll_loss "
         "triplet_margin_loss",
         "use the function of this name in nn.functional"),
        ("eig lstsq solve symeig matrix_rank lu_unpack", "use linalg: eig, eigh, lstsq, solve, matrix_rank, lu"),
        ("lobpcg pca_lowrank svd_lowrank", "use linalg.svd or linalg.eigh, which give all of the decomposition"),
        ("quasirandom", "use rand, or scipy.stats.qmc on the NumPy side"),
        ("signal windows", "use hann_window, hamming_window, blackman_window, bartlett_window or kaiser_window"),
        ("igamma igammac hash_tensor", "use scipy.special on the NumPy side"),
        ("binomial", "add up draws of bernoulli, or use numpy.random.binomial"),
        ("gradient", "use diff, or numpy.gradient"),
        ("histogramdd", "use numpy.histogramdd on the NumPy side, or histogram per dimension"),
        ("segment_reduce", "use scatter_reduce or index_reduce"),
        ("as_strided_scatter", _STRIDED_SCATTER),
        ("as_strided_* empty_strided empty_permuted resize_as_ slice_inverse", _SHAPES),
        ("norm_except_dim", "use linalg.vector_norm over the other dimensions"),
        ("foreach", "loop over the tensors; optimizers do it natively"),
        ("is_inference", "use tensor.is_inference()"),
        ("float8_* float4_* uint* int[1-7] bits* bit", _DTYPE),
        ("chalf", "complex numbers start at complex64"),
        ("sparse_coo sparse_csr jagged legacy_contiguous_format", "strided is the one layout"),
        ("fork wait Future", "use concurrent.futures"),
        ("classes library Tag DispatchKey* ExcludeDispatchKeyGuard",
         "an op of your own is an autograd.Function; amp.register_op gives it an autocast policy"),
        ("DisableTorchFunction*", _OVERRIDES),
        ("BenchmarkConfig BenchmarkExecutionStats ThroughputBenchmark", "use time.perf_counter, or ampnative bench"),
        ("functional", "its functions are in the package itself"),
        ("numa", "use taskset or numactl"),
        ("nativert", "save the state_dict and load it into the same model in PyTorch to export or to deploy it"),
        ("contrib", _INTERNAL),
        ("types", "annotate with ampnative.Tensor, dtype, device and Python's types"),
        ("ModuleDict ParameterDict", "they are in nn"),
        ("has_* is_vulkan_available compiled_with_*", "ampnative info tells what is there"),
        ("profiler_* init_num_threads prepare_multiprocessing_environment thread_safe_generator get_file_path torch_version "
         "USE_* PRIVATE_OPS TYPE_CHECKING classproperty cpp torch AVG SUM AggregationType FatalError merge_type_from_type_comment "
         "parse_* unify_type_list import_ir_* vitals_enabled", _INTERNAL),
        ("builtins ctypes functools glob inspect math os platform sys textwrap threading typing typing_extensions "
         "warnings", _PYTHON),
        ("*Type Script* *ScriptModule *ModuleType* *Logger LoggerBase *Context Graph* Gradient Node Block Use Value "
         "Argument* *ArgumentSpec "
         "AliasDb BufferDict CallStack Capsule Code CompilationUnit ConcreteModule* DeepCopyMemoTable ErrorReport "
         "ExecutionPlan FileCheck "
         "FunctionSchema IODescriptor JITException OperatorInfo PyTorchFile* StaticModule TracingState Type "
         "StreamObjType", _SCRIPT),
    ),
    "nn": (
        ("Container", "use Sequential, ModuleList or ModuleDict"),
        ("grad", _GRAD_OF_CONV),
        ("intrinsic qat quantizable quantized", _QUANTISED),
        ("backends common_types cpp", _INTERNAL),
        ("LinearCrossEntropy*", "use Linear and CrossEntropyLoss"),
        ("factory_kwargs", _INTERNAL),
    ),
    "nn.functional": (
        ("linear_cross_entropy", "use linear and cross_entropy"),
        ("adaptive_max_pool?d_with_indices fractional_max_pool?d_with_indices",
         "call the function without _with_indices, with return_indices=True"),
        ("grouped_mm scaled_*", "use matmul; autocast computes it in 16 bits"),
        ("native_channel_shuffle", "use channel_shuffle"),
        ("handle_torch_function has_torch_function*", _OVERRIDES),
        ("Tensor", "it is ampnative.Tensor"),
        ("BroadcastingList* DType GRID_SAMPLE_* ScalingType SwizzleType TYPE_CHECKING assert_int_or_pair "
         "boolean_dispatch *_notes", _INTERNAL),
    ),
    "nn.utils": (("convert_conv?d_weight_memory_format", "tensors are contiguous; leave the call out"),
                 ("memory_format", "tensors are contiguous; leave the call out"), ("init", "skip_init is in nn.utils itself")),
    "nn.modules": (("Container", "use Sequential, ModuleList or ModuleDict"),
                   ("LinearCrossEntropy* linear_cross_entropy*", "use Linear and CrossEntropyLoss")),
    "nn.container": (("Container", "use Sequential, ModuleList or ModuleDict"),),
    "nn.loss": (("LinearCrossEntropy*", "use Linear and CrossEntropyLoss"),),
    "nn.modules.module": (("register_module_*_registration_hook",
                           "override register_module, register_parameter or register_buffer"),),
    "nn.parallel": (("comm distributed gather parallel_apply replicate scatter scatter_gather", _ONE_DEVICE),
                    ("DistributedDataParallelCPU", _ONE_DEVICE)),
    "nn.utils.rnn": (("PackedSequence_ bind copy_method_params", _INTERNAL),),
    "nn.utils.parametrize": (("CustomClassBase get_swap_* is_opaque_* is_traceable_*", _INTERNAL),),
    "nn.attention": (
        ("SDPAParams can_use_* *_flash_attention_impl list_flash_attention_impls WARN_FOR_UNFUSED_KERNELS "
         "flex_attention varlen bias experimental", _FLASH),
    ),
    "optim": (
        ("SparseAdam sparse_adam", "gradients are dense: use Adam"),
        ("functional swap_in_optimizer_params_and_state", _INTERNAL),
    ),
    "optim.lr_scheduler": (("EPOCH_DEPRECATION_WARNING TYPE_CHECKING inf",
    _INTERNAL), ("Optimizer Tensor", "it is in optim, or in the package")),
    "optim.adadelta": (("adadelta", _FUNCTIONAL_STEP),),
    "optim.adagrad": (("adagrad", _FUNCTIONAL_STEP),),
    "optim.adam": (("adam", _FUNCTIONAL_STEP),),
    "optim.adamax": (("adamax", _FUNCTIONAL_STEP),),
    "optim.adamw": (("adamw", _FUNCTIONAL_STEP),),
    "optim.asgd": (("asgd", _FUNCTIONAL_STEP),),
    "optim.nadam": (("nadam", _FUNCTIONAL_STEP),),
    "optim.radam": (("radam", _FUNCTIONAL_STEP),),
    "optim.rmsprop": (("rmsprop", _FUNCTIONAL_STEP),),
    "optim.rprop": (("rprop", _FUNCTIONAL_STEP),),
    "optim.sgd": (("sgd", _FUNCTIONAL_STEP),),
    "optim.optimizer": (("register_optimizer_step_*", "use register_step_pre_hook and register_step_post_hook of each optimizer"),),
    "optim.swa_utils": (("TYPE_CHECKING", _INTERNAL),),
    "autograd": (
        ("profiler profiler_* Profiler* DeviceType kineto_available", _PROFILER),
        ("variable", "Variable is ampnative.Tensor"),
        ("handle_torch_function has_torch_function is_tensor_like", _OVERRIDES),
        ("is_multithreading_enabled set_multithreading_enabled enforce_grad_layout_policy is_view_replay_enabled "
         "NestedIOFunction SavedTensor",
         _INTERNAL),
    ),
    "autograd.function": (
        ("InplaceFunction", "use Function, and ctx.mark_dirty in its forward"),
        ("BackwardCFunction FunctionMeta NestedIOFunction", _INTERNAL),
    ),
    "autograd.grad_mode": (("enforce_grad_layout_policy set_multithreading_enabled", _INTERNAL),),
    "autograd.gradcheck": (("get_*_jacobian*", "use autograd.functional.jacobian"),),
    "autograd.graph": (
        ("node_creation_hook", "walk next_functions of a result's grad_fn, or use autograd.detect_anomaly"),
        ("region_activation_memory_budget", _SELECTIVE),
        ("RemovableHandle TYPE_CHECKING TorchDispatchMode Variable set_*", _INTERNAL),
    ),
    "linalg": (("polar", "with U, S, Vh = svd(A): U @ Vh and Vh.mH @ diag(S) @ Vh"), ("common_notes", _INTERNAL)),
    "fft": (("common_args factory_common_args", _INTERNAL),),
    "special": (
        ("airy_ai bessel_* modified_bessel_* scaled_modified_bessel_* spherical_bessel_* erfcx gammainc gammaincc log_ndtr zeta",
         "use scipy.special on the NumPy side"),
        ("*_polynomial_*", "evaluate it by its recurrence, or use scipy.special on the NumPy side"),
        ("Tensor common_args multi_dim_common", _INTERNAL),
    ),
    "cuda": (
        ("CUDAGraph graph graphs graph_* make_graphed_callables is_current_stream_capturing export_dot export_graph_data", _GRAPH),
        ("*Storage", _STORAGE),
        ("nvtx profiler", _PROFILER),
        ("nccl comm", _ONE_DEVICE),
        ("*allocator* CUDAPluggableAllocator MemPool use_mem_pool memory_snapshot *host_memory_stats* memory_stats_as_nested_dict",
         "use memory_stats and memory_summary"),
        ("clock_rate power_draw temperature utilization memory_usage device_memory_used list_gpu_processes cudart "
         "cudaStatus check_error "
         "CudaError DeferredCudaCallError current_*_handle can_device_access_peer GreenContext ExternalStream "
         "get_stream_from_external "
         "jiterator has_half has_magma tunable get_sync_debug_mode set_sync_debug_mode gds green_contexts", _HARDWARE),
        ("StreamContext device_of", "use stream and device"),
        ("default_generators", "use ampnative.default_generator: all devices draw from it"),
        ("is_tf32_supported", "TF32 is there on every device: see backends.cuda.matmul.fp32_precision"),
        ("sparse", _SPARSE),
        ("streams", "Stream and Event are in cuda itself"),
        ("DEVICE_REQUIREMENT* PYTORCH_RELEASES_CODE_CC TYPE_CHECKING classproperty", _INTERNAL),
    ),
    "cuda.amp": (("amp_definitely_not_available common", "use cuda.is_available"),),
    "cuda.memory": (
        ("list_gpu_processes", _HARDWARE),
        ("*allocator* CUDAPluggableAllocator MemPool use_mem_pool memory_snapshot *host_memory_stats* memory_stats_as_nested_dict",
         "use memory_stats and memory_summary"),
    ),
    "cpu": (
        ("Event Stream StreamContext current_stream stream", "work on the CPU is done when its call returns; leave it out"),
        ("get_capabilities", "use ampnative info"),
        ("MappingProxyType", _INTERNAL),
    ),
    "utils": (
        ("ThroughputBenchmark benchmark", "use time.perf_counter, or ampnative bench"),
        ("swap_tensors", "exchange the .data of the tensors"),
        ("deterministic", "memory is not filled: use zeros, or full"),
        ("collect_env", "ampnative info tells what a bug report needs"),
        ("throughput_benchmark", "use time.perf_counter, or ampnative bench"),
        ("flop_counter", "ampnative.debug.op_report counts the calls of ops; sizes give the operations of a product: 2 * M * N * K"),
        ("model_zoo", "nothing is downloaded here; build the model and load its weights with serialization.load_safetensors"),
        ("module_tracker", "hooks of modules (register_forward_hook) see every call"),
        ("serialization model_dump show_pickle", "use ampnative.load, numpy.load or serialization.load_safetensors on the file"),
        ("bundled_inputs jit", _SCRIPT),
        ("mkldnn", "layers are fast as they are"),
        ("viz debug_log", "use ampnative.debug"),
        ("weak", "import weakref from Python's library"),
        ("backcompat backend_registration cpp_backtrace file_baton hipify", _INTERNAL),
        ("cmake_prefix_path generate_methods_* get_cpp_backtrace rename_privateuse1_backend set_module", _INTERNAL),
    ),
    "utils.data": (
        ("*DataPipe functional_datapipe datapipes graph graph_settings backward_compatibility",
         "use Dataset, IterableDataset or generators"),
        ("DataChunk argument_validation guaranteed_* non_deterministic runtime_validation*", _INTERNAL),
    ),
    "utils.checkpoint": (
        ("get_device_states set_device_states", "use get_rng_state and set_rng_state"),
        ("DefaultDeviceType GraphExecGroup LoggingTensorMode SavedTensor TYPE_CHECKING Text TorchDispatchMode "
         "capture_logs tree_map", _INTERNAL),
    ),
    "testing": (("assert_allclose", "use assert_close"), ("FileCheck", _SCRIPT)),
    "utils.dlpack": (("DLDeviceType ReadOnlyTensorWrapper",
                      "__dlpack_device__() of a tensor says where it is; all can be written"),),
    "utils.hooks": (("BackwardHook unserializable_hook warn_if_has_hooks", "use register_full_backward_hook, or hooks of tensors"),),
    "backends": (
        ("xeon", "use taskset or numactl, and set_num_threads"),
        ("miopen opt_einsum python_native quantized cusparselt kleidiai nnpack xnnpack mkl openmp",
         "the settings are those of cuda, cudnn and mkldnn, threads are those of set_num_threads; ampnative info tells what is there"),
    ),
    "backends.cuda": (
        ("SDPAParams", _FLASH),
        ("sdp_kernel preferred_rocm_fa_library", "use nn.attention.sdpa_kernel"),
        ("preferred_linalg_library", "linalg is made of NumPy's; there is nothing to choose"),
        ("*workspace_size cuBLASModule cuFFT* cufft_plan_cache", "products take no workspace and FFTs keep no plans; leave it out"),
    ),
    "backends.mps": (("get_core_count get_name is_macos*", "the devices are cpu and cuda"),),
    "accelerator": (
        ("Graph graphs", _GRAPH),
        ("get_device_capability", _HARDWARE),
        ("memory random", "its functions are in accelerator itself, manual_seed and the generator's state in the package"),
    ),
    "multiprocessing": (
        ("pool queue", "import it from Python's multiprocessing"),
        ("reductions", "tensors are copied from process to process; there is nothing to set up"),
    ),
    "serialization": (
        ("*safe_globals* *unsafe_globals* skip_data register_package location_tag default_restore_location normalize_storage_type "
         "storage_to_tensor_type validate_*_device StorageType get_crc32_options set_crc32_options *_default_load_endianness "
         "LoadEndianness *_default_mmap_options SourceChangeWarning", _LOAD),
        ("check_module_version_greater_or_equal mkdtemp", _INTERNAL),
    ),
    "return_types": (
        ("*_out all_return_types pytree_register_structseq slogdet lu_unpack histogramdd linalg_polar linalg_solve_ex",
         "results have the type of their function; look at type(result)"),
    ),
    "random": (("TYPE_CHECKING thread_safe_generator", _INTERNAL),),
    "func": (
        ("grad grad_and_value", "use autograd.grad on the function's result"),
        ("hessian jacfwd jacrev jvp vjp", "use autograd.functional: jacobian, hessian, jvp, vjp"),
        ("stack_module_state functionalize linearize vmap rearrange replace_all_batch_norm_modules_ debug_unwrap", _FUNCTIONAL),
    ),
    "Tensor": (
        ("coalesce is_coalesced ccol_indices col_indices crow_indices row_indices indices values sparse_* smm sspaddmm to_sparse* "
         "resize_as_sparse_", _SPARSE),
        ("dequantize int_repr q_* qscheme", _QUANTISED),
        ("storage storage_type untyped_storage set_ is_set_to", _STORAGE),
        ("resize resize_ resize_as resize_as_ as_strided_ new_empty_strided slice_inverse", _SHAPES),
        ("as_strided_scatter", _STRIDED_SCATTER),
        ("eig lstsq solve symeig", "use linalg: eig, eigh, lstsq, solve"),
        ("cauchy_", "use tan(pi * (u - 0.5)) of uniform draws u"),
        ("geometric_", "use ceil(log(u) / log1p(-p)) of uniform draws u"),
        ("igamma* hash_tensor", "use scipy.special on the NumPy side"),
        ("mvlgamma_ polygamma_ map2_", "use the function and copy_"),
        ("index", "use tensor[indices]"),
        ("ipu mtia xpu to_mkldnn is_maia", "the devices are cpu and cuda"),
        ("chalf", "complex numbers start at complex64"),
        ("to_padded_tensor", "pad to one length and use a mask, or loop"),
        ("reinforce volatile", "removed from PyTorch; use no_grad, and the score-function estimator"),
        ("module_load grad_dtype name", _INTERNAL),
    ),
}  # fmt: skip

# The members of the patterns with wildcards.
TENSOR_FAMILIES = {
    "sparse_*": ("sparse_mask", "sparse_resize_", "sparse_resize_and_clear_"),
    "to_sparse*": ("to_sparse", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr"),
    "q_*": ("q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point"),
    "igamma*": ("igamma", "igamma_", "igammac", "igammac_"),
}

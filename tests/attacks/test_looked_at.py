"""What a library offers by which an exercise "by hand" could be answered: all of it was looked at.

A new version of torch brings functions that nobody has looked at, and one of them may do all that
an exercise asks for, as linear_cross_entropy came to do. So the public names of the version that
the course is locked to stand here. Where a name is new, see whether it does the work of an exercise
by hand: then it goes into `by_hand` there. Then it goes into the list here.
"""

import importlib
import re
from pathlib import Path
from types import FunctionType

import pytest
import torch

from autograde import bank
from autograde.by_hand import functions_named, names_in, python_function, refusing

LOCKED = re.search(
    r"^torch==(\S+)", (Path(__file__).parents[2] / "requirements.lock").read_text(), re.MULTILINE
)[1]
only_locked = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != LOCKED, reason="names are those of the locked version"
)
NAMES = {
    "torch.nn.functional": """
        ScalingType SwizzleType Tensor adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
        adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d
        adaptive_max_pool3d_with_indices affine_grid alpha_dropout assert_int_or_pair
        avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
        binary_cross_entropy_with_logits boolean_dispatch celu celu_ channel_shuffle conv1d
        conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout dropout1d
        dropout2d dropout3d elu elu_ embedding embedding_bag feature_alpha_dropout fold
        fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu grid_sample group_norm
        grouped_mm gumbel_softmax handle_torch_function hardshrink hardsigmoid hardswish
        hardtanh hardtanh_ has_torch_function has_torch_function_unary
        has_torch_function_variadic hinge_embedding_loss huber_loss instance_norm interpolate
        kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear linear_cross_entropy
        local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d
        margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
        max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d
        max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss
        multilabel_margin_loss multilabel_soft_margin_loss native_channel_shuffle nll_loss
        normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle
        poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu rrelu_ scaled_addmm
        scaled_addmm_ scaled_dot_product_attention scaled_grouped_mm scaled_mm selu selu_
        sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink
        softsign tanh tanhshrink threshold threshold_ triplet_margin_loss
        triplet_margin_with_distance_loss unfold upsample upsample_bilinear upsample_nearest
    """,
    "torch.utils.checkpoint": """
        CheckpointError CheckpointFunction CheckpointPolicy DefaultDeviceType GraphExecGroup
        LoggingTensorMode SavedTensor SelectiveCheckpointContext TorchDispatchMode capture_logs
        check_backward_validity checkpoint checkpoint_sequential
        create_selective_checkpoint_contexts detach_variable get_device_states noop_context_fn
        set_checkpoint_debug_enabled set_checkpoint_early_stop set_device_states tree_map
    """,
    "torch.optim": """
        ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer RAdam
        RMSprop Rprop SGD SparseAdam swap_in_optimizer_params_and_state
    """,
    "torch.nn.utils": """
        clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_
        convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format
        fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights
        get_total_norm parameters_to_vector remove_spectral_norm remove_weight_norm skip_init
        spectral_norm vector_to_parameters weight_norm
    """,
    "torch.nn.init": """
        Tensor calculate_gain constant constant_ dirac dirac_ eye eye_ kaiming_normal
        kaiming_normal_ kaiming_uniform kaiming_uniform_ normal normal_ ones_ orthogonal
        orthogonal_ sparse sparse_ trunc_normal_ uniform uniform_ xavier_normal xavier_normal_
        xavier_uniform xavier_uniform_ zeros_
    """,
    "torch.amp": """
        GradScaler autocast custom_bwd custom_fwd is_autocast_available
    """,
    "torch.autograd": """
        DeviceType Function NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent
        ProfilerState SavedTensor Variable backward detect_anomaly enable_grad
        enforce_grad_layout_policy grad gradcheck gradgradcheck handle_torch_function
        has_torch_function inference_mode is_multithreading_enabled is_tensor_like
        is_view_replay_enabled kineto_available no_grad set_detect_anomaly set_grad_enabled
        set_multithreading_enabled variable
    """,
    "torch.func": """
        debug_unwrap functional_call functionalize grad grad_and_value hessian jacfwd jacrev
        jvp linearize rearrange replace_all_batch_norm_modules_ stack_module_state vjp vmap
    """,
    "torch.nn": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss
        AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d
        AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear Buffer
        CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d
        ConstantPad2d ConstantPad3d Container Conv1d Conv2d Conv3d ConvTranspose1d
        ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss
        CrossMapLRN2d DataParallel Dropout Dropout1d Dropout2d Dropout3d ELU Embedding
        EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d
        GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish
        Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d
        InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm
        LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
        LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d
        LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear
        LinearCrossEntropyLoss LinearCrossEntropyOptions LocalResponseNorm LogSigmoid
        LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d
        MaxUnpool2d MaxUnpool3d Mish Module ModuleDict ModuleList MultiLabelMarginLoss
        MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU
        PairwiseDistance Parameter ParameterDict ParameterList PixelShuffle PixelUnshuffle
        PoissonNLLLoss RMSNorm RNN RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d
        ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d SELU
        Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus
        Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold Transformer
        TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
        TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold UninitializedBuffer
        UninitializedParameter Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d
        ZeroPad2d ZeroPad3d factory_kwargs
    """,
}
"""Public functions and classes of torch, by module. Of those that come near an exercise and are
allowed, renorm (no name of these modules, but an operator) shortens one vector: who clips with it
has joined the gradients and returned their norm without torch's function for clipping; kl_div,
normalize and the like leave the half of an exercise that it is about."""


def public(module):
    return {
        name
        for name, value in vars(importlib.import_module(module)).items()
        if name[:1] != "_"
        and callable(value)
        and str(getattr(value, "__module__", "")).startswith("torch")
    }


@only_locked
@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_of_the_locked_torch_was_looked_at(module):
    assert public(module) == {*NAMES[module].split()}


HELPERS = """
    GradScaler._check_inf_per_device GradScaler._check_scale_growth_tracker
    GradScaler._get_scale_async GradScaler._lazy_init_scale_growth_tracker
    GradScaler._maybe_opt_step _refresh_per_optimizer_state
    _get_softmax_dim _linear_cross_entropy_chunked_applies _verify_batch_size _verify_spatial_size
    _calculate_correct_fan _calculate_fan_in_and_fan_out _no_grad_normal_ _no_grad_uniform_
    calculate_gain normal_ uniform_
    _get_total_norm Adam._init_group Adamax._init_group NAdam._init_group RAdam._init_group
    _get_autocast_kwargs _get_debug_context_and_cb _get_device_module _infer_device_type
    _internal_assert _is_compiling _make_checkpoint_wrapper _run_fn_with_dynamo_disabled
    check_backward_validity get_device_states noop_context_fn set_device_states
"""
"""What the guarded functions of a library call in their own module and what does no exercise's
work: it checks, or prepares; and draws of a given spread, joint norms, random states."""


def helpers_of(function):
    """Functions of the same module that a function calls by name, also methods of its class."""
    names, scope = names_in(function.__code__), function.__globals__
    owner = scope.get(function.__qualname__.rpartition(".")[0])
    held = [scope.get(name) for name in names]
    held += [vars(owner).get(name) for name in names] if isinstance(owner, type) else []
    plain = {python_function(f) for f in held if isinstance(f, FunctionType)}
    return {f for f in plain if f.__module__ == function.__module__}


@only_locked
def test_what_the_guarded_functions_of_a_library_are_made_of_refuses_or_was_looked_at():
    left = set()
    for exercise in (entry.load() for entry in bank.asks_for_code().values()):
        theirs = [f for f in functions_named(exercise) if not f.__module__.startswith("course.")]
        inner = {helper for function in theirs for helper in helpers_of(function)}
        left |= {helper.__qualname__ for helper in inner - {*refusing(exercise)}}
    assert left == {*HELPERS.split()}

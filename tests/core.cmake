focus_test(autograd_tests BOTH
  SOURCES
    autograd/tensor_test.cpp autograd/variable_test.cpp autograd/gemm_test.cpp
    autograd/bf16_test.cpp
    autograd/elementwise_test.cpp autograd/linear_test.cpp autograd/norm_test.cpp
    autograd/softmax_test.cpp autograd/rope_test.cpp autograd/cross_entropy_test.cpp
    autograd/attention_test.cpp autograd/threads_test.cpp
  NEEDS autograd
  LABELS core)
focus_test(layers_tests BOTH
  SOURCES layers/model_config_test.cpp layers/weights_test.cpp layers/decoder_test.cpp
    layers/bf16_decoder_test.cpp
  NEEDS layers
  LABELS core)
focus_test(optim_tests BOTH
  SOURCES optim/adamw_test.cpp optim/training_step_test.cpp
  NEEDS optim
  LABELS core)
focus_test(focus_tests BOTH
  SOURCES
    focus/sinkhorn_test.cpp focus/routing_test.cpp focus/gated_attention_test.cpp focus/sparse_attention_test.cpp
    focus/focus_model_test.cpp
  NEEDS focus optim
  LABELS core)
focus_test(focus_golden_tests BOTH
  SOURCES golden/focus_golden_test.cpp
  NEEDS focus
  LABELS golden)
focus_test(model_golden_tests BOTH
  SOURCES golden/arch_golden_test.cpp golden/training_golden_test.cpp
  NEEDS focus optim
  LABELS golden)

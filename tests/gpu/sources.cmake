# The checks, relative to this folder: for a card and for the emulated device.
set(ATTND_GPU_CHECKS
  attend.cc
  batch.cc
  elementwise_check.cc
  fragments_check.cc
  golden_check.cc
  golden_data.cc
  gqa_check.cc
  latent_check.cc
  layer_runner.cc
  main.cc
  plain_check.cc
  report.cc
  values.cc)
# What they need of kernels/: none of it uses a library.
set(ATTND_GPU_PLAIN_KERNELS
  cache_layout.cc
  convert.cc
  reference/attention.cc)

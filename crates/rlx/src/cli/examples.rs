//! What the help of the command shows below the options: examples, variables and exit codes.

pub const ENVIRONMENT: &str = "\
Environment:
  RLX_DEVICE           the device, where --device is not given
  RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES
                       devices to allow, to deny and to prefer (comma-separated)
  RLX_BENCHMARK_PICK   choose the device by this many measured runs instead of the cost model
  RLX_DEVICE_CHAIN     devices to try one after the other
  RLX_NUM_THREADS      how many threads the CPU uses (default: all)
  RLX_CPU_ISA          forces an instruction set of the CPU: portable, avx2, avx512, neon
  RLX_LIBRARY_PATH     folders with the libraries of CUDA, ROCm and MLX, looked into first
  RLX_PJRT_PLUGIN      the file of the PJRT plugin that serves TPUs (default: that of an installed libtpu)
  RLX_COREML_UNITS     which processors Core ML may use: all (default), cpu, cpu-gpu, cpu-ane
  RLX_KERNEL_DISPATCH  native (default), common (decompose wherever possible), force-native
  RLX_TUNE             off, cached (default), measure: which variant of a step is used
  RLX_DISPATCH_REPORT  1 prints how each op kind is computed whenever a model is compiled
  RLX_CACHE_DIR        where compiled models, calibrations, tuning and benchmark results and test data are stored
  RLX_CACHE_LIMIT      maximum size of the cache of compiled models, as in 8G (default: 16G)

Exit codes: 0 success, 1 the command failed, 2 invalid arguments, 130 stopped by Ctrl-C, 141 the reader of the output is
gone (as with `| head`).
Ctrl-C stops a command that works on a model before its next step and leaves no half-written file; a second Ctrl-C ends it
immediately.";

pub const EXAMPLES: &str = "\
Examples:
  rlx run models/digits/digits.onnx models/digits/samples/*.png --labels models/digits/labels.txt
  rlx run bert.onnx --inputs sentence.npz --outputs hidden.npz
  rlx compile model.onnx -o model.rlx
  rlx inspect model.onnx --dim batch=1
  rlx verify model.onnx --input x=random --dim batch=2
  rlx compare model.onnx quantized.onnx --inputs x.npz
  rlx bench model.onnx --dim batch=1 --dim seq=128 --threads 2 --json
  rlx tune model.onnx --dim batch=1 --device vulkan
  rlx devices
  rlx doctor";

pub const RUN_EXAMPLES: &str = "\
Examples:
  Classify images of digits, all in one batch:
    rlx run models/digits/digits.onnx models/digits/samples/*.png --labels models/digits/labels.txt
  Read inputs by name from a NumPy archive, write outputs to another:
    rlx run bert.onnx --inputs sentence.npz --outputs hidden.npz
  Pass inputs one by one:
    rlx run bert.onnx --input input_ids=ids.npy --input attention_mask='mask.json'
  All images of a folder, 16 at a time; those that cannot be read are reported, and the others still run:
    rlx run classifier.onnx photos/ --batch 16 --labels labels.txt
  Read JSON lines and write a JSON line for each, such as {\"input_ids\": [101, 7592, 102]}:
    rlx run bert.onnx --lines sentences.jsonl > hidden.jsonl
  Prepare photographs as the model was trained (a preprocessor_config.json beside the model does the same):
    rlx run resnet18.onnx photo.jpg --preset imagenet --labels imagenet.txt
    rlx run model.onnx photo.jpg --resize 256 --crop 224 --mean 0.5 --std 0.5 --colors bgr
  Check that a model runs at all:
    rlx run model.onnx --input x=random --dim batch=1 --deadline 10s";

pub const COMPILE_EXAMPLES: &str = "\
Examples:
  rlx compile model.onnx -o model.rlx
  rlx run model.rlx --inputs sentence.npz
  rlx compile bert.onnx -o bert.rlx --dim batch=1 --slim
  rlx compile bert.onnx --device ane -o bert.mlpackage --dim batch=1 --dim seq=128     a package for Core ML, on any system
The file is valid for this device, instruction set, driver and version of RLX only, and is rejected elsewhere.";

pub const TUNE_EXAMPLES: &str = "\
Examples:
  rlx tune model.onnx --dim batch=1
  rlx tune bert.onnx --device cuda --precision bf16 --dim batch=8 --dim seq=128 --limit 5m
  rlx compile bert.onnx --device cuda --precision bf16 --dim batch=8 --dim seq=128 -o bert.rlx     with the measured variants
All variants give the same bits. What was measured before is not measured again, so a second call goes on where the limit ended the first.";

pub const CACHE_EXAMPLES: &str = "\
Examples:
  rlx run model.onnx --cache --inputs x.npz     compiles at the first run, loads at the next
  rlx cache ls
  rlx cache verify
  rlx cache rm model
  rlx cache rm --all";

pub const INSPECT_EXAMPLES: &str = "\
Examples:
  rlx inspect model.onnx
  rlx inspect model.onnx --dim batch=1 --dim seq=128    costs and memory for these sizes
  rlx inspect weights.safetensors                       the tensors of a file, also of a .gguf
  rlx inspect model.onnx --format svg -o model.svg      a diagram; repeated layers are drawn once
  rlx inspect model.onnx --format dot | dot -Tpdf -o model.pdf
  rlx inspect model.onnx --passes                       the graph after every pass
  rlx inspect model.onnx --passes=legalize..fuse-regions    the changes each of these passes made
  rlx inspect model.onnx --passes=legalize --format svg     the diagram after this pass
Of a model that cannot be run, its file is shown: ops with all that are not supported, tensors, metadata, and the reason.";

pub const VERIFY_EXAMPLES: &str = "\
Examples:
  rlx verify model.onnx --inputs golden.npz
  rlx verify model.onnx --device vulkan --against cpu
  rlx verify model.onnx --dim batch=2 --precision bf16 --rtol 0.02
  rlx verify model.onnx --inputs x.npz --expect y.npz   outputs of another program for these inputs, by numpy.savez
The exit code is 1 where something diverges.";

pub const COMPARE_EXAMPLES: &str = "\
Examples:
  rlx compare model.onnx quantized.onnx --inputs x.npz
  rlx compare old.onnx new.onnx --dim batch=2           inputs that are not given are made up, the same every time
  rlx compare model.onnx model_fp16.onnx --json
Inputs and outputs are matched by name, or else by their order. The exit code is 1 where an output differs.";

pub const BENCH_EXAMPLES: &str = "\
Examples:
  rlx bench model.onnx --dim batch=1 --threads 1
  rlx bench bert.onnx --dim batch=1 --dim seq=128 --runs 200 --json
  rlx bench model.onnx --profile                      where the time goes, step by step
  rlx bench model.onnx --roofline model.svg --trace model.json
Inputs that are not given are random.";

pub const DEVICES_EXAMPLES: &str = "\
Examples:
  rlx devices --json
  rlx devices --calibrate                                calibrate the cost model of every device again
  rlx devices bert.onnx --dim batch=1 --dim seq=128      the predicted time on each device, and the choice
  rlx devices bert.onnx --dim batch=1 --dim seq=128 --measure 10
Dimensions that are not given are 1 for a batch and 128 for everything else.
The choice follows RLX_DEVICE, RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES and RLX_BENCHMARK_PICK.";

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  rlx completions bash > ~/.local/share/bash-completion/completions/rlx
  rlx completions zsh > ~/.zfunc/_rlx          with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  rlx completions fish > ~/.config/fish/completions/rlx.fish
  rlx completions powershell >> $PROFILE";

pub const MAN_EXAMPLES: &str = "\
Examples:
  rlx man | man -l -
  rlx man -o ~/.local/share/man/man1           then: man rlx, man rlx-bench";

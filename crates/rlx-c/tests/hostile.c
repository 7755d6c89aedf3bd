/* What no caller should do: every call must return an error, and say something. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rlx.h"

static int faults = 0;

static void expect(RlxStatus got, RlxStatus want, const char *what) {
    if (got != want || rlx_last_error()[0] == 0) {
        fprintf(stderr, "%s: %d instead of %d: %s\n", what, (int)got, (int)want, rlx_last_error());
        faults++;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const RlxStatus invalid = RLX_STATUS_INVALID_ARGUMENT;
    RlxModel *model = NULL;
    RlxRun *run = NULL;
    RlxOptions *options = NULL;
    RlxTensor output;
    RlxTensorInfo info;

    expect(rlx_options_new(NULL), invalid, "options: null");
    rlx_options_free(NULL);
    rlx_model_free(NULL);
    rlx_run_free(NULL);
    if (rlx_options_new(&options) != RLX_STATUS_OK) return 1;
    expect(rlx_options_set(NULL, "device", "cpu"), invalid, "set: no options");
    expect(rlx_options_set(options, NULL, "cpu"), invalid, "set: no name");
    expect(rlx_options_set(options, "device", NULL), invalid, "set: no value");
    expect(rlx_options_set(options, "devise", "cpu"), invalid, "set: no such option");
    expect(rlx_options_set(options, "device", "\xff"), invalid, "set: not UTF-8");
    expect(rlx_load(NULL, NULL, &model), invalid, "load: no path");
    expect(rlx_load(argv[1], NULL, NULL), invalid, "load: no place");
    expect(rlx_load("no-such-file.onnx", options, &model), RLX_STATUS_FILE, "load: no file");
    expect(rlx_load_bytes(NULL, 8, NULL, &model), invalid, "load: no bytes");
    expect(rlx_load_bytes((const uint8_t *)"not a model", 11, NULL, &model), RLX_STATUS_MALFORMED, "load: no model");
    if (model != NULL) faults++;
    rlx_options_set(options, "device", "tpu");
    expect(rlx_load(argv[1], options, &model), RLX_STATUS_DEVICE_UNAVAILABLE, "load: no device");
    rlx_options_free(options);

    if (rlx_load(argv[1], NULL, &model) != RLX_STATUS_OK) return 1;
    expect(rlx_input_info(NULL, 0, &info), invalid, "info: no model");
    expect(rlx_input_info(model, 0, NULL), invalid, "info: no place");
    expect(rlx_input_info(model, 99, &info), invalid, "info: no such input");
    expect(rlx_output_info(model, (size_t)-1, &info), invalid, "info: no such output");
    if (rlx_input_count(NULL) != 0 || rlx_output_count(NULL) != 0 || rlx_run_output_count(NULL) != 0) faults++;
    if (rlx_input_count(model) != 1 || rlx_output_count(model) != 1) faults++;

    float image[64] = {0};
    const size_t dims[4] = {1, 1, 8, 8}, huge[4] = {(size_t)-1, (size_t)-1, 8, 8}, narrow[4] = {1, 1, 8, 7};
    const RlxTensor good = {"image", RLX_DTYPE_F32, 4, dims, image, sizeof image};
    RlxTensor bad;
    expect(rlx_run(NULL, &good, 1, &run), invalid, "run: no model");
    expect(rlx_run(model, &good, 1, NULL), invalid, "run: no place");
    expect(rlx_run(model, NULL, 1, &run), invalid, "run: no inputs");
    expect(rlx_run(model, &good, (size_t)-1, &run), invalid, "run: too many inputs");
    expect(rlx_run(model, NULL, 0, &run), RLX_STATUS_INVALID_INPUT, "run: none given");
#define WITH(field, value, status, what) \
    bad = good;                          \
    bad.field = value;                   \
    expect(rlx_run(model, &bad, 1, &run), status, what)
    WITH(name, NULL, invalid, "input: no name");
    WITH(name, "imagine", RLX_STATUS_INVALID_INPUT, "input: no such name");
    WITH(name, "\xff\xfe", invalid, "input: name not UTF-8");
    WITH(dtype, 99, invalid, "input: no such type");
    WITH(dtype, RLX_DTYPE_F64, invalid, "input: bytes of another type");
    WITH(dtype, RLX_DTYPE_I32, RLX_STATUS_INVALID_INPUT, "input: another type");
    WITH(rank, (size_t)-1, invalid, "input: too many dimensions");
    WITH(dims, NULL, invalid, "input: no dimensions");
    WITH(dims, huge, invalid, "input: huge");
    WITH(dims, narrow, invalid, "input: dimensions and bytes");
    WITH(data, NULL, invalid, "input: no data");
    WITH(bytes, 0, invalid, "input: no bytes");
    if (run != NULL) faults++;
    RlxTensor twice[2] = {good, good};
    expect(rlx_run(model, twice, 2, &run), RLX_STATUS_INVALID_INPUT, "run: given twice");

    if (rlx_run(model, &good, 1, &run) != RLX_STATUS_OK) return 1;
    expect(rlx_run_output(NULL, 0, &output), invalid, "output: no run");
    expect(rlx_run_output(run, 1, &output), invalid, "output: no such");
    expect(rlx_run_output(run, 0, NULL), invalid, "output: no place");
    expect(rlx_run_find(run, "nothing", &output), invalid, "output: no such name");
    expect(rlx_run_find(run, NULL, &output), invalid, "output: no name");
    if (rlx_run_output_count(run) != 1) faults++;
    if (rlx_run_find(run, "probabilities", &output) != RLX_STATUS_OK || output.bytes != 40) faults++;
    rlx_run_free(run);
    rlx_model_free(model);
    printf("%d faults with RLX %s\n", faults, rlx_version());
    return faults != 0;
}

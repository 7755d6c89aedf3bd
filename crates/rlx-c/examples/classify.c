// Classifies one image of a digit: classify MODEL
//
//   cc classify.c -I../include -L<folder of librlx_c> -lrlx_c -o classify

#include <stdio.h>
#include <string.h>

#include "rlx.h"

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, rlx_last_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL\n", argv[0]);
        return 2;
    }
    RlxOptions *options = NULL;
    if (rlx_options_new(&options) != RLX_STATUS_OK) return failed("options");
    if (rlx_options_set(options, "threads", "1") != RLX_STATUS_OK) return failed("threads");
    RlxModel *model = NULL;
    if (rlx_load(argv[1], options, &model) != RLX_STATUS_OK) return failed(argv[1]);
    rlx_options_free(options);

    RlxTensorInfo info;
    if (rlx_input_info(model, 0, &info) != RLX_STATUS_OK) return failed("input");
    printf("%s takes %s:", argv[1], info.name);
    for (size_t i = 0; i < info.rank; i++) {
        if (info.dims[i] < 0) printf(" %s", info.dim_names[i]);
        else printf(" %lld", (long long)info.dims[i]);
    }
    printf("\n");

    // A vertical stroke.
    float image[64] = {0};
    for (int row = 0; row < 8; row++) image[row * 8 + 3] = image[row * 8 + 4] = 1.0f;
    const size_t dims[4] = {1, 1, 8, 8};
    RlxTensor input = {info.name, RLX_DTYPE_F32, 4, dims, image, sizeof image};
    RlxRun *run = NULL;
    if (rlx_run(model, &input, 1, &run) != RLX_STATUS_OK) return failed("run");

    RlxTensor output;
    if (rlx_run_output(run, 0, &output) != RLX_STATUS_OK) return failed("output");
    const float *probabilities = output.data;
    size_t best = 0;
    for (size_t i = 1; i < output.dims[1]; i++)
        if (probabilities[i] > probabilities[best]) best = i;
    printf("%s: %zu (%.3f)\n", output.name, best, probabilities[best]);

    // The run's memory outlives the model.
    rlx_model_free(model);
    float sum = 0;
    for (size_t i = 0; i < output.dims[1]; i++) sum += probabilities[i];
    rlx_run_free(run);
    return sum > 0.99f && sum < 1.01f ? 0 : 1;
}

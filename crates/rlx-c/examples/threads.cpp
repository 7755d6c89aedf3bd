// Runs one model on several threads at once: threads MODEL
//
//   c++ -std=c++17 threads.cpp -I../include -L<folder of librlx_c> -lrlx_c -pthread -o threads

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "rlx.h"

namespace {

void check(RlxStatus status) {
    if (status != RLX_STATUS_OK) throw std::runtime_error(rlx_last_error());
}

struct FreeModel {
    void operator()(RlxModel *model) const { rlx_model_free(model); }
};
struct FreeRun {
    void operator()(RlxRun *run) const { rlx_run_free(run); }
};

std::vector<float> classify(const RlxModel *model, float brightness) {
    std::array<float, 64> image;
    image.fill(brightness);
    const std::array<std::size_t, 4> dims{1, 1, 8, 8};
    const RlxTensor input{"image", RLX_DTYPE_F32, dims.size(), dims.data(), image.data(), sizeof image};
    RlxRun *raw = nullptr;
    check(rlx_run(model, &input, 1, &raw));
    const std::unique_ptr<RlxRun, FreeRun> run(raw);
    RlxTensor output;
    check(rlx_run_find(run.get(), "probabilities", &output));
    const auto *values = static_cast<const float *>(output.data);
    return {values, values + output.bytes / sizeof(float)};
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    try {
        RlxModel *raw = nullptr;
        check(rlx_load(argv[1], nullptr, &raw));
        const std::unique_ptr<RlxModel, FreeModel> model(raw);
        const std::vector<float> want = classify(model.get(), 0.5f);
        std::vector<std::thread> threads;
        std::array<bool, 8> equal{};
        for (std::size_t i = 0; i < equal.size(); i++)
            threads.emplace_back([&, i] { equal[i] = classify(model.get(), 0.5f) == want; });
        for (auto &thread : threads) thread.join();
        for (bool e : equal)
            if (!e) throw std::runtime_error("a thread got another result");
        std::printf("%zu threads agree\n", equal.size());
        return 0;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

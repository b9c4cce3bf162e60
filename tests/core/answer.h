// A golden case asked of an engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/golden.h"
#include "tests/support/splits.h"
#include "tests/support/test_engine.h"

namespace attnd {

// Runs one split and returns the answers [len, d_model] in the order of their rows.
inline std::vector<float> Answer(TestEngine* engine, const GoldenCase& c, const Split& split) {
  const std::string id = engine->Create(c.prefix);
  std::vector<float> out(c.x.size());
  for (const Call& call : split.calls) {
    const auto begin = c.x.begin() + call.position * c.d_model;
    std::vector<float> rows(begin, begin + call.rows * c.d_model);
    std::unique_ptr<Step> step =
        call.decode ? engine->Decode({id}, c.layer, {call.position}, std::move(rows), call.rows)
                    : engine->Prefill(id, c.layer, call.position, std::move(rows));
    step = engine->Run(std::move(step));
    EXPECT_TRUE(step->Outcome().ok()) << step->Outcome();
    const int64_t at = call.decode ? call.position : step->output_position;
    std::copy(step->output.begin(), step->output.end(), out.begin() + at * c.d_model);
  }
  EXPECT_TRUE(engine->engine().sessions().Close("", id).ok());
  return out;
}

}  // namespace attnd

// Between the wire and core: the one copy of a request's payload, and sessions.
#pragma once

#include <cstdint>

#include "attnd/v1/attnd.pb.h"
#include "core/session.h"
#include "core/step.h"
#include "kernels/dtype.h"
#include "server/fast_parse.h"

namespace attnd::server {

// Reads `bytes`, elements of `dtype`, into step->hidden as float32: [rows of all
// sequences][d_model], of which `bytes` has exactly the bytes. A sequence of the step with a NaN or
// an infinity among its rows gets the status NOT_FINITE, unless it has failed already.
void ReadHidden(const TensorBytes& bytes, DType dtype, int64_t d_model, Step* step);

void WriteSession(const SessionInfo& info, v1::Session* session);

}  // namespace attnd::server

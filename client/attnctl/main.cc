// attnctl: the command-line tool of attnd.
#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "client/attnctl/command.h"

int main(int argc, char** argv) {
  // Errors are one line, attnctl's own: the libraries say nothing, unless asked to.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  google::protobuf::SetLogHandler(nullptr);
  try {
    return attnd::attnctl::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {  // memory, by far the likeliest
    std::fprintf(stderr, "attnctl: %s\n", error.what());
    return 1;
  }
}

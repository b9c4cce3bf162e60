// attnctl: the command-line tool of attnd.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "client/attnctl/command.h"

int main(int argc, char** argv) {
  try {
    return attnd::attnctl::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {  // memory, by far the likeliest
    std::fprintf(stderr, "attnctl: %s\n", error.what());
    return 1;
  }
}

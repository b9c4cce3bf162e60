// attnd, with the devices of this build.
#include "server/builtin_devices.h"
#include "server/run.h"

int main(int argc, char** argv) {
  return attnd::server::RunServer({argv + 1, argv + argc}, ATTND_VERSION,
                                  attnd::server::BuiltInDevices());
}

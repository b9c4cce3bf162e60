// The status page.
#include "server/status_page.h"

#include <sys/random.h>

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/status_page_html.h"

namespace attnd::server {
namespace {

// Unguessable, as nobody can know what the next answer allows.
std::string MakeNonce() {
  std::array<unsigned char, 16> bytes{};
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = getrandom(bytes.data() + got, bytes.size() - got, 0);
    got += n > 0 ? static_cast<size_t>(n) : 0;
  }
  std::string nonce;
  for (unsigned char byte : bytes) {
    absl::StrAppend(&nonce, absl::Hex(byte, absl::kZeroPad2));
  }
  return nonce;
}

}  // namespace

StatusPage MakeStatusPage() {
  const std::string nonce = MakeNonce();
  return {
      absl::StrReplaceAll(kStatusPageHtml, {{"%NONCE%", nonce}}),
      absl::StrCat("default-src 'none'; script-src 'nonce-", nonce, "'; style-src 'nonce-", nonce,
                   "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'")};
}

}  // namespace attnd::server

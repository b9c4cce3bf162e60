// Who calls: bearer tokens.
#include "server/auth.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/file.h"
#include "core/session_store.h"

namespace attnd::server {
namespace {

constexpr char kBearer[] = "Bearer ";

constexpr int64_t kMaxTokensBytes = int64_t{16} << 20;  // some 200,000 tokens

// True when equal; looks at every byte of `known` whatever `given` is.
bool ConstantTimeEqual(const std::string& known, const std::string& given) {
  unsigned difference = known.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < known.size(); ++i) {
    const unsigned char other = given.empty() ? 0 : given[i % given.size()];
    difference |= static_cast<unsigned char>(known[i]) ^ other;
  }
  return difference == 0;
}

}  // namespace

absl::StatusOr<Auth> Auth::FromFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTokensBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--auth_tokens_file=", text.status().message()));
  }
  std::istringstream file(*text);
  Auth auth;
  auth.on_ = true;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (absl::Status status = auth.AddLine(line); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--auth_tokens_file=", path, ": line ", number, ": ", status.message()));
    }
  }
  if (auth.tokens_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--auth_tokens_file=", path, ": expected at least one token"));
  }
  return auth;
}

absl::Status Auth::AddLine(const std::string& line) {
  std::istringstream words(line);
  std::string tenant;
  std::string token;
  std::string rest;
  if (!(words >> tenant) || tenant.front() == '#') {
    return absl::OkStatus();
  }
  if (!(words >> token) || words >> rest) {
    return absl::InvalidArgumentError("expected a tenant and a token");
  }
  if (!CheckSessionId(tenant).ok()) {
    return absl::InvalidArgumentError("expected a tenant of 1 to 128 of A-Z a-z 0-9 . _ -");
  }
  for (const auto& [known, owner] : tokens_) {
    if (known == token) {
      return absl::InvalidArgumentError("expected a token that no other line has");
    }
  }
  tokens_.emplace_back(token, tenant);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Auth::Tenant(const std::string& header) const {
  if (!on_) {
    return std::string();
  }
  const bool bearer = header.rfind(kBearer, 0) == 0;
  const std::string given = bearer ? header.substr(sizeof(kBearer) - 1) : std::string();
  const std::string* tenant = nullptr;
  for (const auto& [token, owner] : tokens_) {
    if (ConstantTimeEqual(token, given)) {
      tenant = &owner;
    }
  }
  if (!bearer || tenant == nullptr) {
    return MakeError(Reason::kBadCredentials,
                     bearer ? "metadata authorization: the bearer token is not known here"
                            : "metadata authorization: expected 'Bearer TOKEN'");
  }
  return *tenant;
}

}  // namespace attnd::server

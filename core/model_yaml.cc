// Reading of APEX-1's YAML: the keys, their types, and what is wrong with those that are not.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "core/file.h"
#include "core/model_config.h"
#include "core/text.h"

namespace attnd {
namespace {

struct Ignored {};
using Field =
    std::variant<Ignored, int64_t ModelConfig::*, double ModelConfig::*, bool ModelConfig::*>;
struct Key {
  const char* section;
  const char* name;
  Field field;
  bool required = false;
};

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = {
      {"model", "d_model", &ModelConfig::d_model, true},
      {"model", "n_layers", &ModelConfig::n_layers, true},
      {"model", "n_heads_q", &ModelConfig::n_heads_q, true},
      {"model", "n_heads_kv", &ModelConfig::n_heads_kv, true},
      {"model", "d_head", &ModelConfig::d_head, true},
      {"model", "d_kv_compressed", &ModelConfig::d_kv_compressed, true},
      {"model", "d_q_compressed", &ModelConfig::d_q_compressed, true},
      {"model", "d_head_rope", &ModelConfig::d_head_rope, true},
      {"model", "max_seq_len", &ModelConfig::max_seq_len, true},
      {"model", "rope_base", &ModelConfig::rope_base},
      {"model", "rope_scaling", &ModelConfig::rope_scaling},
      {"model", "rope_attn_factor", &ModelConfig::rope_attn_factor},
      {"model", "d_ffn", Ignored()},
      {"model", "vocab_size", Ignored()},
      {"model", "dropout", Ignored()},
      {"attention", "global_layer_freq", &ModelConfig::global_layer_freq, true},
      {"attention", "local_window", &ModelConfig::local_window, true},
      {"attention", "flash", Ignored()},
  };
  return keys;
}

// "'64'", for messages.
std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Scalar:
      return Quoted(node.Scalar());
    default:
      return "nothing";
  }
}

// Quoted text is text, whatever it spells.
bool IsPlainScalar(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

bool ReadInt(const YAML::Node& node, int64_t* value) {
  const std::string& text = node.Scalar();
  const size_t sign = text.rfind('-', 0) == 0 ? 1 : 0;
  const bool digits =
      text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
  return digits && absl::SimpleAtoi(text, value);
}

bool ReadDouble(const YAML::Node& node, double* value) {
  const std::string& text = node.Scalar();
  return text.find_first_not_of("0123456789+-.eE") == std::string::npos &&
         absl::SimpleAtod(text, value);
}

bool ReadBool(const YAML::Node& node, bool* value) {
  const std::string& text = node.Scalar();
  *value = text == "true" || text == "True" || text == "TRUE";
  return *value || text == "false" || text == "False" || text == "FALSE";
}

absl::Status ReadField(const Key& key, const YAML::Node& node, const std::string& origin,
                       ModelConfig* config) {
  const char* expected = nullptr;
  bool good = IsPlainScalar(node);
  if (const auto* whole = std::get_if<int64_t ModelConfig::*>(&key.field)) {
    expected = "a whole number below 2^63";
    good = good && ReadInt(node, &(config->*(*whole)));
  } else if (const auto* real = std::get_if<double ModelConfig::*>(&key.field)) {
    expected = "a number";
    good = good && ReadDouble(node, &(config->*(*real)));
  } else if (const auto* flag = std::get_if<bool ModelConfig::*>(&key.field)) {
    expected = "true or false";
    good = good && ReadBool(node, &(config->*(*flag)));
  } else {
    return absl::OkStatus();
  }
  if (!good) {
    const bool text = node.IsScalar() && !IsPlainScalar(node);
    return FileError(origin, std::string(key.section) + "." + key.name + " is " +
                                 (text ? "the text " : "") + Describe(node) + "; expected " +
                                 expected);
  }
  return absl::OkStatus();
}

absl::Status UnknownKey(const std::string& section, const std::string& name,
                        const std::string& origin) {
  std::vector<std::string> known;
  for (const Key& key : Keys()) {
    if (key.name == name) {
      return FileError(origin, "key '" + name + "' stands in section '" + section +
                                   "'; expected it in '" + key.section + "'");
    }
    if (key.section == section) {
      known.emplace_back(key.name);
    }
  }
  return FileError(origin, "key " + Quoted(name) + " of section '" + section +
                               "' is not known; did you mean '" + Nearest(name, known) + "'?");
}

absl::Status ReadSection(const std::string& section, const YAML::Node& map,
                         const std::string& origin, ModelConfig* config) {
  if (!map.IsMap()) {
    return FileError(origin,
                     "section '" + section + "' is " + Describe(map) + "; expected a map of keys");
  }
  std::set<std::string> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) {
      return FileError(origin, "a key of section '" + section + "' is " + Describe(entry.first) +
                                   "; expected a name");
    }
    const std::string& name = entry.first.Scalar();
    const auto key = std::find_if(Keys().begin(), Keys().end(), [&](const Key& candidate) {
      return candidate.section == section && candidate.name == name;
    });
    if (key == Keys().end()) {
      return UnknownKey(section, name, origin);
    }
    if (!seen.insert(name).second) {
      return FileError(origin, "key '" + section + "." + name + "' stands there twice");
    }
    if (absl::Status status = ReadField(*key, entry.second, origin, config); !status.ok()) {
      return status;
    }
  }
  for (const Key& key : Keys()) {
    if (key.required && key.section == section && seen.count(key.name) == 0) {
      return FileError(origin, "key '" + section + "." + key.name + "' is missing");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadDocument(const YAML::Node& document, const std::string& origin,
                          ModelConfig* config) {
  if (!document.IsMap()) {
    return FileError(origin, "is " + Describe(document) +
                                 "; expected a map with the sections 'model' and 'attention'");
  }
  std::set<std::string> seen;
  for (const auto& entry : document) {
    if (!entry.first.IsScalar()) {
      return FileError(origin,
                       "a section's name is " + Describe(entry.first) + "; expected a name");
    }
    const std::string& section = entry.first.Scalar();
    if (!seen.insert(section).second) {
      return FileError(origin, "section " + Quoted(section) + " stands there twice");
    }
    if (section == "model" || section == "attention") {
      if (absl::Status status = ReadSection(section, entry.second, origin, config); !status.ok()) {
        return status;
      }
    }
  }
  for (const char* section : {"model", "attention"}) {
    if (seen.count(section) == 0) {
      return FileError(origin, std::string("section '") + section + "' is missing");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckText(const std::string& yaml, const std::string& origin) {
  if (const size_t bad = FirstInvalidUtf8(yaml); bad < yaml.size()) {
    return FileError(origin, "is not UTF-8 at byte " + std::to_string(bad));
  }
  if (const size_t nul = yaml.find('\0'); nul != std::string::npos) {
    return FileError(origin, "has a NUL at byte " + std::to_string(nul) + "; expected text");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(const std::string& yaml, const std::string& origin) {
  if (absl::Status status = CheckText(yaml, origin); !status.ok()) {
    return status;
  }
  ModelConfig config;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(yaml);
    if (documents.size() > 1) {
      return FileError(origin,
                       "has " + std::to_string(documents.size()) + " YAML documents; expected one");
    }
    const YAML::Node document = documents.empty() ? YAML::Node() : documents.front();
    if (absl::Status status = ReadDocument(document, origin, &config); !status.ok()) {
      return status;
    }
  } catch (const YAML::Exception& error) {
    return FileError(origin, "is not YAML at line " + std::to_string(error.mark.line + 1) + ": " +
                                 Printable(error.msg, 200));
  } catch (const std::exception& error) {
    return FileError(origin, std::string("cannot be read as YAML: ") + error.what());
  }
  if (absl::Status status = ValidateModelConfig(config, origin); !status.ok()) {
    return status;
  }
  return config;
}

}  // namespace attnd

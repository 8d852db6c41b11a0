#include "router/fleet/fingerprint.h"

#include "common/base/digest.h"

namespace baton::router::fleet {

std::string DifferingField(const baton::fleet::v1::Fingerprint& a, const baton::fleet::v1::Fingerprint& b) {
  if (a.protocol() != b.protocol()) return "protocol";
  if (a.config() != b.config()) return "config";
  if (a.weights() != b.weights()) return "weights";
  if (a.kv().layers() != b.kv().layers()) return "kv.layers";
  if (a.kv().kv_heads() != b.kv().kv_heads()) return "kv.kv_heads";
  if (a.kv().head_dim() != b.kv().head_dim()) return "kv.head_dim";
  if (a.kv().block_tokens() != b.kv().block_tokens()) return "kv.block_tokens";
  if (a.kv().key_dtype() != b.kv().key_dtype()) return "kv.key_dtype";
  if (a.kv().value_dtype() != b.kv().value_dtype()) return "kv.value_dtype";
  if (a.numerics() != b.numerics()) return "numerics";
  if (a.link() != b.link()) return "link";
  if (a.model() != b.model()) return "model";
  return "";
}

std::string AnswerDigest(const baton::fleet::v1::Fingerprint& fingerprint) {
  baton::fleet::v1::Fingerprint decides = fingerprint;
  decides.clear_protocol();
  decides.clear_link();
  decides.clear_model();
  return Sha256Of(decides.SerializeAsString());
}

}  // namespace baton::router::fleet

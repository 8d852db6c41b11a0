#include "protocol/fleet/fingerprint_wire.h"

#include "common/base/digest.h"
#include "common/tensor/dtype.h"

namespace baton::protocol {

fleet::v1::Fingerprint ToProto(const Fingerprint& fingerprint) {
  fleet::v1::Fingerprint proto;
  proto.set_protocol(fingerprint.protocol);
  proto.set_config(fingerprint.config);
  proto.set_weights(fingerprint.weights);
  proto.set_model(fingerprint.model);
  fleet::v1::KvLayout& kv = *proto.mutable_kv();
  kv.set_layers(fingerprint.kv.layers);
  kv.set_kv_heads(fingerprint.kv.kv_heads);
  kv.set_head_dim(fingerprint.kv.head_dim);
  kv.set_block_tokens(fingerprint.block_tokens);
  kv.set_key_dtype(std::string(tensor::Name(fingerprint.kv.key_dtype)));
  kv.set_value_dtype(std::string(tensor::Name(fingerprint.kv.value_dtype)));
  proto.set_numerics(fingerprint.numerics);
  return proto;
}

Fingerprint FromProto(const fleet::v1::Fingerprint& proto) {
  Fingerprint fingerprint;
  fingerprint.protocol = proto.protocol();
  fingerprint.config = proto.config();
  fingerprint.weights = proto.weights();
  fingerprint.model = proto.model();
  fingerprint.kv.layers = static_cast<int>(proto.kv().layers());
  fingerprint.kv.kv_heads = static_cast<int>(proto.kv().kv_heads());
  fingerprint.kv.head_dim = static_cast<int>(proto.kv().head_dim());
  fingerprint.block_tokens = static_cast<int>(proto.kv().block_tokens());
  fingerprint.numerics = proto.numerics();
  const auto keys = tensor::DTypeFromName(proto.kv().key_dtype());
  const auto values = tensor::DTypeFromName(proto.kv().value_dtype());
  if (!keys.ok() || !values.ok()) {
    fingerprint.kv.layers = 0;
  } else {
    fingerprint.kv.key_dtype = *keys;
    fingerprint.kv.value_dtype = *values;
  }
  return fingerprint;
}

std::string DifferingField(const fleet::v1::Fingerprint& a, const fleet::v1::Fingerprint& b) {
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

std::string AnswerDigest(const fleet::v1::Fingerprint& fingerprint) {
  fleet::v1::Fingerprint decides = fingerprint;
  decides.clear_protocol();
  decides.clear_link();
  decides.clear_model();
  return Sha256Of(decides.SerializeAsString());
}

}  // namespace baton::protocol

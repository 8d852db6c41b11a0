#include "transfer/fingerprint_wire.h"

#include "common/tensor/dtype.h"

namespace baton::transfer {

fleet::v1::Fingerprint ToProto(const model::Fingerprint& fingerprint) {
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

model::Fingerprint FromProto(const fleet::v1::Fingerprint& proto) {
  model::Fingerprint fingerprint;
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

}  // namespace baton::transfer

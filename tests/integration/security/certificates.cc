#include "tests/integration/security/certificates.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>

#include "common/base/check.h"
#include "common/base/secret.h"

namespace baton::rpc {
namespace {

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

Key MakeKey() { return Key(EVP_EC_gen("P-256"), EVP_PKEY_free); }

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  BATON_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1) << value;
  X509_EXTENSION_free(extension);
}

Certificate MakeCertificate(const std::string& name, EVP_PKEY* key, long serial, absl::Duration from,
                            absl::Duration to) {
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), absl::ToInt64Seconds(from));
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), absl::ToInt64Seconds(to));
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

template <typename Write>
void WriteFile(const std::string& path, Write write) {
  const std::string fresh = path + ".new";
  std::FILE* file = std::fopen(fresh.c_str(), "w");
  BATON_CHECK(file != nullptr) << fresh;
  BATON_CHECK(write(file) == 1) << fresh;
  std::fclose(file);
  std::filesystem::rename(fresh, path);
}

}  // namespace

Authority::Authority(const std::string& name)
    : folder_(::testing::TempDir() + "/" + name + "_" + RandomHex(6)),
      key_(MakeKey()),
      certificate_(MakeCertificate(name, key_.get(), 1, -absl::Hours(2), absl::Hours(2))) {
  std::filesystem::create_directories(folder_);
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), certificate_.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  BATON_CHECK(X509_sign(certificate_.get(), key_.get(), EVP_sha256()) > 0);
  ca_ = folder_ + "/ca.pem";
  WriteFile(ca_, [&](std::FILE* file) { return PEM_write_X509(file, certificate_.get()); });
}

Authority::~Authority() { std::filesystem::remove_all(folder_); }

PairFiles Authority::Issue(const std::string& name, absl::Duration valid_from, absl::Duration valid_to) {
  const Key key = MakeKey();
  const Certificate certificate = MakeCertificate(name, key.get(), ++serial_, valid_from, valid_to);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate.get(), certificate_.get(), NID_subject_alt_name,
               "IP:127.0.0.1,DNS:localhost,DNS:" + name);
  BATON_CHECK(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0);
  const PairFiles files = {folder_ + "/" + name + ".crt", folder_ + "/" + name + ".key"};
  WriteFile(files.key, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  WriteFile(files.cert, [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
  return files;
}

}  // namespace baton::rpc

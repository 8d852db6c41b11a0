#include "common/telemetry/certificate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <prometheus/metric_family.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/time/clock.h"

namespace baton::telemetry {
namespace {

// A self-signed certificate that ends `seconds` from now.
void WriteCertificate(const std::string& path, long seconds) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), seconds);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(PEM_write_X509(file, certificate.get()), 1);
  std::fclose(file);
}

double Shown(const std::string& path) {
  const auto families = CertificateMetrics(path).Collect();
  return families.size() == 1 ? families[0].metric[0].gauge.value : -1;
}

TEST(Certificate, ItsEndIsShownAndFollowsTheFile) {
  const std::string path = testing::TempDir() + "/certificate.pem";
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  WriteCertificate(path, 86400);
  EXPECT_NEAR(Shown(path), now + 86400, 600);
  WriteCertificate(path, 30 * 86400);
  EXPECT_NEAR(Shown(path), now + 30 * 86400, 600);
}

TEST(Certificate, AnUnreadableOneIsAnAlertNotAGap) {
  EXPECT_EQ(Shown("/nowhere/certificate.pem"), 0);
  const std::string path = testing::TempDir() + "/not-a-certificate.pem";
  std::ofstream(path) << "hello";
  EXPECT_EQ(Shown(path), 0);
  EXPECT_EQ(CertificateEnd(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CertificateEnd("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST(Certificate, NoneWithoutTls) { EXPECT_TRUE(CertificateMetrics("").Collect().empty()); }

}  // namespace
}  // namespace baton::telemetry

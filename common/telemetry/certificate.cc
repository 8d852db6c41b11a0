#include "common/telemetry/certificate.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"

namespace baton::telemetry {

absl::StatusOr<absl::Time> CertificateEnd(const std::string& pem_file) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(pem_file.c_str(), "r"), BIO_free);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("can't read the certificate ", pem_file));
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
  std::tm end = {};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(pem_file, " holds no certificate in PEM"));
  }
  return absl::FromTimeT(timegm(&end));
}

std::vector<prometheus::MetricFamily> CertificateMetrics::Collect() const {
  if (pem_file_.empty()) return {};
  prometheus::ClientMetric metric;
  const absl::StatusOr<absl::Time> end = CertificateEnd(pem_file_);
  metric.gauge.value = end.ok() ? absl::ToDoubleSeconds(*end - absl::UnixEpoch()) : 0;
  return {{"baton_tls_certificate_expiry_timestamp_seconds",
           "When this process's certificate ends, in seconds since 1970",
           prometheus::MetricType::Gauge,
           {metric}}};
}

}  // namespace baton::telemetry

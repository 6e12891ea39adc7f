// A certificate made on the spot, trusted by nobody.
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "tests/launcher/transport/net_test.h"

namespace regroup::transport {
namespace {

void use_own_certificate(SSL_CTX* context) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = ::X509_new();
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), 1);
  ::X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  ::X509_set_pubkey(certificate, key);
  ::X509_sign(certificate, key, EVP_sha256());
  EXPECT_EQ(::SSL_CTX_use_certificate(context, certificate), 1);
  EXPECT_EQ(::SSL_CTX_use_PrivateKey(context, key), 1);
  ::X509_free(certificate);
  ::EVP_PKEY_free(key);
}

}  // namespace

ForeignTls::ForeignTls(bool server, int highest_version)
    : server_(server), context_(::SSL_CTX_new(TLS_method())) {
  SSL_CTX_set_max_proto_version(context_, highest_version);
  ::SSL_CTX_set_verify(context_, SSL_VERIFY_NONE, nullptr);  // it would take anybody
  if (server) use_own_certificate(context_);
  // A client that has a shared key too, in the way of TLS 1.2: the wrong one.
  ::SSL_CTX_set_psk_client_callback(context_, [](SSL*, const char*, char* identity, unsigned int,
                                                 unsigned char* key, unsigned int) {
    std::snprintf(identity, 64, "regroup1 job-1 7 0");
    key[0] = 1;
    return 1U;
  });
}

ForeignTls::~ForeignTls() { ::SSL_CTX_free(context_); }

bool ForeignTls::shake_hands(const base::Fd& socket) {
  SSL* ssl = ::SSL_new(context_);
  ::SSL_set_fd(ssl, socket.get());
  bool good = (server_ ? ::SSL_accept(ssl) : ::SSL_connect(ssl)) == 1;
  // A client of TLS 1.3 is content before the server is: only a byte from there would prove
  // anything.
  char byte = 0;
  if (good && !server_) good = ::SSL_read(ssl, &byte, 1) == 1;
  ::SSL_free(ssl);
  return good;
}

}  // namespace regroup::transport

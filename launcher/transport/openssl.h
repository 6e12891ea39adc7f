// Loads OpenSSL at run time, when the first secret of a job is made. Linked, libcrypto's 16,000
// relocations would cost every start of regroup 1.5 ms, and every fork the pages they touch, even
// for jobs on one host.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include "base/status.h"

namespace regroup::transport {

#define REGROUP_OPENSSL_FUNCTIONS(X)       \
  X(BIO_clear_flags)                       \
  X(BIO_get_data)                          \
  X(BIO_meth_free)                         \
  X(BIO_meth_new)                          \
  X(BIO_meth_set_ctrl)                     \
  X(BIO_meth_set_read)                     \
  X(BIO_meth_set_write)                    \
  X(BIO_new)                               \
  X(BIO_set_data)                          \
  X(BIO_set_flags)                         \
  X(BIO_set_init)                          \
  X(ERR_clear_error)                       \
  X(ERR_peek_error)                        \
  X(ERR_reason_error_string)               \
  X(EVP_sha256)                            \
  X(HMAC)                                  \
  X(SSL_CIPHER_find)                       \
  X(SSL_CTX_ctrl)                          \
  X(SSL_CTX_free)                          \
  X(SSL_CTX_new)                           \
  X(SSL_CTX_set_ciphersuites)              \
  X(SSL_CTX_set_default_read_buffer_len)   \
  X(SSL_CTX_set_max_early_data)            \
  X(SSL_CTX_set_num_tickets)               \
  X(SSL_CTX_set_psk_find_session_callback) \
  X(SSL_CTX_set_psk_use_session_callback)  \
  X(SSL_CTX_set_verify)                    \
  X(SSL_SESSION_free)                      \
  X(SSL_SESSION_new)                       \
  X(SSL_SESSION_set1_master_key)           \
  X(SSL_SESSION_set_cipher)                \
  X(SSL_SESSION_set_protocol_version)      \
  X(SSL_do_handshake)                      \
  X(SSL_free)                              \
  X(SSL_get_error)                         \
  X(SSL_get_ex_data)                       \
  X(SSL_new)                               \
  X(SSL_read_ex)                           \
  X(SSL_session_reused)                    \
  X(SSL_set_accept_state)                  \
  X(SSL_set_bio)                           \
  X(SSL_set_connect_state)                 \
  X(SSL_set_ex_data)                       \
  X(SSL_set_verify)                        \
  X(SSL_shutdown)                          \
  X(SSL_version)                           \
  X(SSL_write_ex)                          \
  X(TLS_method)

// OpenSSL's own names, so that its manual and its macros apply.
struct OpenSsl {
#define REGROUP_OPENSSL_DECLARE(name) \
  decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declared name
  REGROUP_OPENSSL_FUNCTIONS(REGROUP_OPENSSL_DECLARE)
#undef REGROUP_OPENSSL_DECLARE
};

// kUnavailable: OpenSSL is missing or lacks a function. Any thread; the first call loads it for the
// life of the process.
[[nodiscard]] base::Status load_openssl();
// Call only after load_openssl() succeeded.
[[nodiscard]] const OpenSsl& openssl();

}  // namespace regroup::transport

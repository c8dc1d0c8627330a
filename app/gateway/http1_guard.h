/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_HTTP1_GUARD_H
#define GW_HTTP1_GUARD_H

/**
 * @file
 * Guard against invalid heads of HTTP/1 requests. libh2o 2.2 answers them with plain text, without
 * a log line; clients of this API read JSON. libh2o parses heads with phr_parse_request(), which
 * http1_guard.c overrides: it turns an invalid head into a GET of `gw_bad_head` that closes the
 * connection. The same happens to heads that define the end of their content or their host twice,
 * which libh2o accepts; of other heads it removes the field that upgrades HTTP/1 to HTTP/2. It also
 * overrides h2o_hpack_parse_headers() of HTTP/2, because libh2o does not limit the number of fields
 * (above 100 the connection ends), and phr_parse_response() for answers of the tokenizer. No state;
 * any thread.
 */

/** Target of such a request; recognised by the address of the text. */
extern const char gw_bad_head[];

#endif

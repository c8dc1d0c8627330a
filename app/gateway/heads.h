/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_HEADS_H
#define GW_HEADS_H

/**
 * @file
 * Heads of requests that are no HTTP. libh2o 2.2 answers them with a text of its own and nobody
 * hears of it; clients of this API read JSON. It parses heads with phr_parse_request(), which it
 * calls as any shared library calls another: heads.c takes that name, calls the library's, and
 * makes of a head that is none a GET of `gw_bad_head` that ends its connection. So it does with
 * those that say twice where their content ends or whom they are for, which libh2o takes; of the
 * others it takes out the field by which HTTP/1 becomes HTTP/2. And with h2o_hpack_parse_headers()
 * of HTTP/2, whose fields libh2o does not count: above 100 the connection ends; and with
 * phr_parse_response() for the tokenizer's answers. No state; any thread.
 */

/** Target of such a request: the address of the text, not the text, is what tells it. */
extern const char gw_bad_head[];

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "http1_guard.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "streams.h"

#define MOST_DIGITS 15 /* of a length: it fits 60 bits */

/* libh2o's headers of both need others that are not installed. */
struct phr_header {
	const char *name; /* NULL: the line goes on with the value of the one before */
	size_t name_len;
	const char *value;
	size_t value_len;
};

typedef int parse_fn(const char *buf, size_t len, const char **method, size_t *method_len,
		     const char **path, size_t *path_len, int *minor_version,
		     struct phr_header *headers, size_t *num_headers, size_t last_len);

typedef int fields_fn(h2o_req_t *req, void *table, const uint8_t *src, size_t len,
		      int *pseudo_headers, size_t *content_length, void *digests,
		      const char **err_desc);

typedef int response_fn(const char *buf, size_t len, int *minor_version, int *status,
			const char **msg, size_t *msg_len, struct phr_header *headers,
			size_t *num_headers, size_t last_len);

parse_fn phr_parse_request;
response_fn phr_parse_response;
fields_fn h2o_hpack_parse_headers;

const char gw_bad_head[] = "/";

static void *find_original(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL)
		abort(); /* cannot happen: libh2o is linked */
	return found;
}

static bool has_name(const struct phr_header *h, const char *name)
{
	return h->name_len == strlen(name) && strncasecmp(h->name, name, h->name_len) == 0;
}

/* The end of the content must be defined once: a proxy in front could use the other definition, and
 * take what is content here for the next request (RFC 9112, 6.3). The same holds for the host
 * (3.2). Lines must not be folded (5.2). */
static bool is_plain(const struct phr_header *h, size_t n)
{
	unsigned int ends = 0, hosts = 0;

	for (size_t i = 0; i < n; i++) {
		if (h[i].name == NULL)
			return false;
		ends += has_name(&h[i], "content-length") || has_name(&h[i], "transfer-encoding");
		hosts += has_name(&h[i], "host");
	}
	return ends <= 1 && hosts <= 1;
}

/* HTTP/2 begins with its own first line (RFC 9113, 3.1). A proxy that forwards an upgrade no longer
 * sees or filters the requests that follow. */
static size_t without_upgrade(struct phr_header *h, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!has_name(&h[i], "upgrade"))
			h[kept++] = h[i];
	return kept;
}

int phr_parse_request(const char *buf, size_t len, const char **method, size_t *method_len,
		      const char **path, size_t *path_len, int *minor_version,
		      struct phr_header *headers, size_t *num_headers, size_t last_len)
{
	static __thread parse_fn *fn;
	int n;

	if (fn == NULL)
		*(void **)&fn = find_original("phr_parse_request");
	n = fn(buf, len, method, method_len, path, path_len, minor_version, headers, num_headers,
	       last_len);
	if (n > 0 && !is_plain(headers, *num_headers))
		n = -1;
	if (n > 0)
		*num_headers = without_upgrade(headers, *num_headers);
	/* The beginning of HTTP/2 is none of HTTP/1, and libh2o knows what to do. */
	if (n != -1 || (len >= 4 && memcmp(buf, "PRI ", 4) == 0))
		return n;
	*method = "GET";
	*method_len = 3;
	*path = gw_bad_head;
	*path_len = 1;
	*minor_version = 0; /* its connection ends with the answer */
	*num_headers = 0;
	return (int)len;
}

static bool is_length(const struct phr_header *h)
{
	return h->value_len > 0 && h->value_len <= MOST_DIGITS &&
	       strspn(h->value, "0123456789") >= h->value_len;
}

/* Where it ends, in the words that libh2o knows. */
static bool has_end(struct phr_header *h)
{
	static const char chunked[] = "chunked", identity[] = "identity";

	if (h->name == NULL)
		return false;
	if (has_name(h, "content-length"))
		return is_length(h);
	if (!has_name(h, "transfer-encoding"))
		return true;
	if (h->value_len == strlen(chunked) && strncasecmp(h->value, chunked, h->value_len) == 0)
		h->value = chunked;
	else if (h->value_len == strlen(identity) &&
		 strncasecmp(h->value, identity, h->value_len) == 0)
		h->value = identity;
	else
		return false;
	return true;
}

/* The tokenizer's. An end that it does not understand is an assertion of libh2o that fails, and the
 * end of this process; the head's grammar is none. */
int phr_parse_response(const char *buf, size_t len, int *minor_version, int *status,
		       const char **msg, size_t *msg_len, struct phr_header *headers,
		       size_t *num_headers, size_t last_len)
{
	static __thread response_fn *fn;
	int n;

	if (fn == NULL)
		*(void **)&fn = find_original("phr_parse_response");
	n = fn(buf, len, minor_version, status, msg, msg_len, headers, num_headers, last_len);
	for (size_t i = 0; n > 0 && i < *num_headers; i++)
		if (!has_end(&headers[i]))
			n = -1;
	return n;
}

/* A byte of HTTP/2 may stand for a field, and each takes 80 bytes here: 16,000 of them, in every
 * stream. HTTP/1 has its bound. */
int h2o_hpack_parse_headers(h2o_req_t *req, void *table, const uint8_t *src, size_t len,
			    int *pseudo_headers, size_t *content_length, void *digests,
			    const char **err_desc)
{
	static __thread fields_fn *fn;
	int rc;

	if (fn == NULL)
		*(void **)&fn = find_original("h2o_hpack_parse_headers");
	rc = fn(req, table, src, len, pseudo_headers, content_length, digests, err_desc);
	if (rc == 0 && pseudo_headers != NULL) /* they are no trailer */
		gw_stream_comes(req);
	if (rc != 0 || req->headers.size <= H2O_MAX_HEADERS)
		return rc;
	*err_desc = "too many fields";
	return H2O_HTTP2_ERROR_ENHANCE_YOUR_CALM;
}

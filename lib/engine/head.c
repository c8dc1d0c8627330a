/* SPDX-License-Identifier: BSD-3-Clause */
/* The head of a request, in memory of a size computed before. */
#include "kvr_engine_request.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_FIELDS 128u /* bytes of the fields that this file adds */

struct text {
	char *p;
	size_t len, size;
};

static void __attribute__((format(printf, 2, 3))) put_text(struct text *t, const char *format, ...)
{
	const size_t left = t->size - t->len;
	va_list args;
	size_t n;

	va_start(args, format);
	n = (size_t)vsnprintf(t->p + t->len, left, format, args);
	va_end(args);
	assert(n < left); /* the size allows for all fields */
	t->len += n < left ? n : left - 1;
}

int64_t kvr_engine_write_head(const struct kvr_http_head *client,
			      const struct kvr_engine_head *head, char **out)
{
	const char *host = head->url + strlen("http://");
	const int host_len = (int)strcspn(host, "/");
	/* A fragment is for the client alone. */
	const char *hash = memchr(client->target.p, '#', client->target.len);
	const int target_len =
		hash != NULL ? (int)(hash - client->target.p) : (int)client->target.len;
	/* A field of the client has two separators here; on the wire each may have been one byte.
	 */
	struct text t = {.size = client->len + 2 * strlen(head->url) + 2 * client->n_fields +
				 OWN_FIELDS};

	if (head->traceparent != NULL)
		t.size += client->n_fields * strlen(head->traceparent);
	t.p = malloc(t.size);
	*out = t.p;
	if (t.p == NULL)
		return -ENOMEM;
	put_text(&t, "%.*s %s%.*s HTTP/1.1\r\nHost: %.*s\r\n", (int)client->method.len,
		 client->method.p, host + host_len, target_len, client->target.p, host_len, host);
	for (unsigned int i = 0; i < client->n_fields; i++) {
		const struct kvr_http_field *f = &client->fields[i];

		if (kvr_http_equals(f->name, "x-data-parallel-rank") ||
		    (head->uncompressed && kvr_http_equals(f->name, "accept-encoding")))
			continue;
		if (head->traceparent != NULL && kvr_http_equals(f->name, "traceparent"))
			put_text(&t, "traceparent: %s\r\n", head->traceparent);
		else
			put_text(&t, "%.*s: %.*s\r\n", (int)f->name.len, f->name.p,
				 (int)f->value.len, f->value.p);
	}
	if (head->rank != NULL)
		put_text(&t, "X-data-parallel-rank: %u\r\n", *head->rank);
	if (head->content_len > 0 || kvr_http_equals(client->method, "POST"))
		put_text(&t, "Content-Length: %zu\r\n", head->content_len);
	put_text(&t, "\r\n");
	return (int64_t)t.len;
}

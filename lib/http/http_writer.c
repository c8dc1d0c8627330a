/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing heads. The first thing that goes wrong is kept and told at the end. */
#include "http_pvt.h"
#include "kvr_http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put(struct kvr_http_put *w, const char *p, size_t n)
{
	if (w->err != 0)
		return;
	if (n > w->size - w->len || n > KVR_HTTP_MAX_HEAD - w->len) {
		w->err = -ENOSPC;
		return;
	}
	memcpy(w->buf + w->len, p, n);
	w->len += n;
}

static void refuse(struct kvr_http_put *w)
{
	if (w->err == 0)
		w->err = -EINVAL;
}

static bool is_visible(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] >= 0x7f)
			return false;
	return n > 0;
}

void kvr_http_put_request(struct kvr_http_put *w, void *buf, size_t size, const char *method,
			  const char *target)
{
	*w = (struct kvr_http_put){.buf = buf, .size = size};
	if (!kvr_http__is_token(method, strlen(method)) || !is_visible(target, strlen(target)))
		refuse(w);
	put(w, method, strlen(method));
	put(w, " ", 1);
	put(w, target, strlen(target));
	put(w, " HTTP/1.1\r\n", 11);
}

void kvr_http_put_response(struct kvr_http_put *w, void *buf, size_t size, unsigned int status)
{
	const char *words = kvr_http_reason(status);
	char line[24];

	*w = (struct kvr_http_put){.buf = buf, .size = size};
	if (status < 100 || status > 999) {
		refuse(w);
		return;
	}
	put(w, line, (size_t)snprintf(line, sizeof(line), "HTTP/1.1 %u ", status));
	put(w, words, strlen(words));
	put(w, "\r\n", 2);
}

void kvr_http_put_field(struct kvr_http_put *w, const char *name, size_t name_len,
			const char *value, size_t value_len)
{
	if (!kvr_http__is_token(name, name_len) || !kvr_http__is_value(value, value_len) ||
	    kvr_http_is_hop(name, name_len))
		refuse(w);
	put(w, name, name_len);
	put(w, ": ", 2);
	put(w, value, value_len);
	put(w, "\r\n", 2);
}

void kvr_http_put_text(struct kvr_http_put *w, const char *name, const char *value)
{
	kvr_http_put_field(w, name, strlen(name), value, strlen(value));
}

int kvr_http_put_end(struct kvr_http_put *w)
{
	put(w, "\r\n", 2);
	return w->err != 0 ? w->err : (int)w->len;
}

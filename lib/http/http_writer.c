/* SPDX-License-Identifier: BSD-3-Clause */
/* Writer of heads. The first error is kept and returned at the end. */
#include "http_pvt.h"
#include "kvr_http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put_bytes(struct kvr_http_put *head, const char *p, size_t n)
{
	if (head->err != 0)
		return;
	if (n > head->size - head->len || n > KVR_HTTP_MAX_HEAD - head->len) {
		head->err = -ENOSPC;
		return;
	}
	memcpy(head->buf + head->len, p, n);
	head->len += n;
}

static void mark_invalid(struct kvr_http_put *head)
{
	if (head->err == 0)
		head->err = -EINVAL;
}

static bool is_visible(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] >= 0x7f)
			return false;
	return n > 0;
}

void kvr_http_put_request(struct kvr_http_put *head, void *buf, size_t size, const char *method,
			  const char *target)
{
	*head = (struct kvr_http_put){.buf = buf, .size = size};
	if (!kvr_http__is_token(method, strlen(method)) || !is_visible(target, strlen(target)))
		mark_invalid(head);
	put_bytes(head, method, strlen(method));
	put_bytes(head, " ", 1);
	put_bytes(head, target, strlen(target));
	put_bytes(head, " HTTP/1.1\r\n", 11);
}

void kvr_http_put_response(struct kvr_http_put *head, void *buf, size_t size, unsigned int status)
{
	const char *words = kvr_http_reason(status);
	char line[24];

	*head = (struct kvr_http_put){.buf = buf, .size = size};
	if (status < 100 || status > 999) {
		mark_invalid(head);
		return;
	}
	put_bytes(head, line, (size_t)snprintf(line, sizeof(line), "HTTP/1.1 %u ", status));
	put_bytes(head, words, strlen(words));
	put_bytes(head, "\r\n", 2);
}

void kvr_http_put_field(struct kvr_http_put *head, const char *name, size_t name_len,
			const char *value, size_t value_len)
{
	if (!kvr_http__is_token(name, name_len) || !kvr_http__is_value(value, value_len) ||
	    kvr_http_is_hop(name, name_len))
		mark_invalid(head);
	put_bytes(head, name, name_len);
	put_bytes(head, ": ", 2);
	put_bytes(head, value, value_len);
	put_bytes(head, "\r\n", 2);
}

void kvr_http_put_text(struct kvr_http_put *head, const char *name, const char *value)
{
	kvr_http_put_field(head, name, strlen(name), value, strlen(value));
}

int kvr_http_put_end(struct kvr_http_put *head)
{
	put_bytes(head, "\r\n", 2);
	return head->err != 0 ? head->err : (int)head->len;
}

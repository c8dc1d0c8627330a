/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parse heads in place. http_parser implements the grammar; this file adds limits and rejects what
 * must not pass.
 */
#include "http_pvt.h"
#include "kvr_http.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

int kvr_http__on_begin(http_parser *p)
{
	struct kvr_http__parse *s = p->data;

	/* An empty line inside the head would end it for the parser and start another message. */
	if (s->begun)
		s->err = -EBADMSG;
	s->begun = true;
	return s->err;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
	struct kvr_http__parse *s = p->data;

	s->head->target = (struct kvr_http_span){at, (uint32_t)len};
	return 0;
}

int kvr_http__on_name(http_parser *p, const char *at, size_t len)
{
	struct kvr_http__parse *s = p->data;

	if (s->head->n_fields == KVR_HTTP_MAX_FIELDS) {
		s->err = -E2BIG;
		return -1;
	}
	s->head->fields[s->head->n_fields++].name = (struct kvr_http_span){at, (uint32_t)len};
	s->value = false;
	return 0;
}

int kvr_http__on_value(http_parser *p, const char *at, size_t len)
{
	struct kvr_http__parse *s = p->data;

	if (s->value) { /* a folded value */
		s->err = -EBADMSG;
		return -1;
	}
	while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
		len--;
	s->head->fields[s->head->n_fields - 1].value = (struct kvr_http_span){at, (uint32_t)len};
	s->value = true;
	return 0;
}

static int on_done(http_parser *p)
{
	struct kvr_http__parse *s = p->data;

	s->done = true;
	return 0;
}

static int on_body(http_parser *p, const char *at, size_t len)
{
	struct kvr_http__parse *s = p->data;

	s->err = -EBADMSG;
	return -1;
}

bool kvr_http_equals(struct kvr_http_span s, const char *text)
{
	return s.len == strlen(text) && strncasecmp(s.p, text, s.len) == 0;
}

void kvr_http__clear(struct kvr_http_head *head)
{
	memset(head, 0, offsetof(struct kvr_http_head, fields));
}

int kvr_http__check_fields(const struct kvr_http_head *head)
{
	for (unsigned int i = 0; i < head->n_fields; i++) {
		const struct kvr_http_field *f = &head->fields[i];

		if (!kvr_http__is_token(f->name.p, f->name.len) ||
		    !kvr_http__is_value(f->value.p, f->value.len))
			return -EBADMSG;
	}
	return 0;
}

static int check_head(const struct kvr_http_head *head)
{
	for (unsigned int i = 0; i < head->n_fields; i++)
		if (kvr_http_is_hop(head->fields[i].name.p, head->fields[i].name.len))
			return -EBADMSG;
	return kvr_http__check_fields(head);
}

static int parse_head(enum http_parser_type type, const char *data, size_t len,
		      struct kvr_http_head *head)
{
	static const http_parser_settings calls = {
		.on_message_begin = kvr_http__on_begin,
		.on_url = on_url,
		.on_header_field = kvr_http__on_name,
		.on_header_value = kvr_http__on_value,
		.on_headers_complete = on_done,
		.on_body = on_body,
	};
	const size_t most = len < KVR_HTTP_MAX_HEAD ? len : KVR_HTTP_MAX_HEAD;
	struct kvr_http__parse s = {.head = head};
	const char *end = most != 0 ? memmem(data, most, "\r\n\r\n", 4) : NULL;
	http_parser p;
	size_t n;

	kvr_http__clear(head);
	if (end == NULL)
		return len < KVR_HTTP_MAX_HEAD ? -EAGAIN : -E2BIG;
	head->len = (uint32_t)(end - data) + 4;
	http_parser_init(&p, type);
	p.data = &s;
	n = http_parser_execute(&p, &calls, data, head->len);
	if (s.err != 0)
		return s.err;
	if (n != head->len || HTTP_PARSER_ERRNO(&p) != HPE_OK || !s.done || p.http_major != 1 ||
	    p.http_minor != 1)
		return -EBADMSG;
	return check_head(head);
}

int kvr_http_parse_request(const void *data, size_t len, struct kvr_http_head *head)
{
	const char *space;
	int rc = parse_head(HTTP_REQUEST, data, len, head);

	if (rc < 0)
		return rc;
	/* The parser reports methods by number; their text is the first word of the line. */
	space = memchr(data, ' ', head->len);
	if (space == NULL || head->target.len == 0)
		return -EBADMSG;
	head->method = (struct kvr_http_span){data, (uint32_t)(space - (const char *)data)};
	return 0;
}

int kvr_http_parse_response(const void *data, size_t len, struct kvr_http_head *head)
{
	const char *line = data;
	int rc = parse_head(HTTP_RESPONSE, data, len, head);

	if (rc < 0)
		return rc;
	/* "HTTP/1.1 200": the parser has checked that these are digits. */
	for (int i = 9; i < 12; i++) {
		if (line[i] < '0' || line[i] > '9')
			return -EBADMSG;
		head->status = (uint16_t)(head->status * 10 + (line[i] - '0'));
	}
	return head->status >= 100 ? 0 : -EBADMSG;
}

const struct kvr_http_field *kvr_http_find(const struct kvr_http_head *head, const char *name)
{
	for (unsigned int i = 0; i < head->n_fields; i++)
		if (kvr_http_equals(head->fields[i].name, name))
			return &head->fields[i];
	return NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reader of a response. http_parser implements the grammar of heads, lengths and chunks. It
 * receives a head in one piece, so that names and values are contiguous, and the content as it
 * arrives.
 */
#include "kvr_http_reader.h"

#include "http_pvt.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(http_parser) <= sizeof(((struct kvr_http_reader *)0)->parser),
	      "the parser lies in the reader");

/* State while a head is parsed. */
struct head_parse {
	struct kvr_http__parse parse; /* first: the shared callbacks see only this */
	struct kvr_http_reader *r;
};

static http_parser *parser_of(struct kvr_http_reader *reader)
{
	return (http_parser *)reader->parser;
}

static bool is_bare(unsigned int status)
{
	return status < 200 || status == 204 || status == 304;
}

/* @return 1: no content follows, whatever the fields say. */
static int on_head(http_parser *p)
{
	struct head_parse *s = p->data;

	s->parse.done = true;
	return s->r->bare || is_bare(p->status_code) ? 1 : 0;
}

/* A nonzero result stops the parser after the message. */
static int end_message(struct kvr_http_reader *reader, const http_parser *p)
{
	reader->whole = true;
	reader->keep = http_should_keep_alive(p) != 0;
	return 1;
}

static int on_head_whole(http_parser *p)
{
	return end_message(((struct head_parse *)p->data)->r, p);
}

static int on_whole(http_parser *p)
{
	return end_message(p->data, p);
}

static int on_body(http_parser *p, const char *at, size_t len)
{
	struct kvr_http_reader *reader = p->data;

	reader->err = reader->ops->content(reader->arg, at, len);
	return reader->err != 0;
}

static const http_parser_settings head_calls = {
	.on_message_begin = kvr_http__on_begin,
	.on_header_field = kvr_http__on_name,
	.on_header_value = kvr_http__on_value,
	.on_headers_complete = on_head,
	.on_message_complete = on_head_whole,
};

static const http_parser_settings content_calls = {
	.on_body = on_body,
	.on_message_complete = on_whole,
};

void kvr_http_reader_init(struct kvr_http_reader *reader, const struct kvr_http_reader_ops *ops,
			  void *arg, bool is_head)
{
	*reader = (struct kvr_http_reader){.ops = ops, .arg = arg, .bare = is_head};
	http_parser_init(parser_of(reader), HTTP_RESPONSE);
}

void kvr_http_reader_fini(struct kvr_http_reader *reader)
{
	free(reader->held);
	reader->held = NULL;
}

/* Offset of the end of the head; 0 = not in this text. Lines may end with a line feed alone. */
static size_t head_end(const char *p, size_t from, size_t len)
{
	const char *nl = p + from;

	while ((nl = memchr(nl, '\n', (size_t)(p + len - nl))) != NULL) {
		nl++;
		if (nl < p + len && *nl == '\n')
			return (size_t)(nl - p) + 1;
		if (nl + 1 < p + len && nl[0] == '\r' && nl[1] == '\n')
			return (size_t)(nl - p) + 2;
	}
	return 0;
}

/* Accept no transfer coding but chunked: callers could not see that another one was applied. */
static int check_response(const http_parser *p, const struct kvr_http_head *h)
{
	for (unsigned int i = 0; i < h->n_fields; i++)
		if (kvr_http_equals(h->fields[i].name, "transfer-encoding") &&
		    !kvr_http_equals(h->fields[i].value, "chunked"))
			return -EBADMSG;
	if (p->http_major != 1 || p->http_minor > 1 || p->status_code < 100 || p->status_code > 999)
		return -EBADMSG;
	return p->status_code == 101 ? -EPROTO : kvr_http__check_fields(h);
}

/* Parse a complete head of @p len bytes. */
static int take_head(struct kvr_http_reader *reader, const char *data, size_t len)
{
	http_parser *p = parser_of(reader);
	struct kvr_http_head h;
	struct head_parse s = {.parse = {.head = &h}, .r = reader};
	size_t n;
	int rc;

	kvr_http__clear(&h);
	p->data = &s;
	n = http_parser_execute(p, &head_calls, data, len);
	p->data = reader;
	if (s.parse.err != 0)
		return s.parse.err;
	if (!s.parse.done || n != len || (HTTP_PARSER_ERRNO(p) != HPE_OK && !reader->whole))
		return -EBADMSG;
	rc = check_response(p, &h);
	if (rc < 0)
		return rc;
	if (p->status_code < 200) { /* informational: the response follows */
		reader->whole = false;
		http_parser_init(p, HTTP_RESPONSE);
		return 0;
	}
	h.status = (uint16_t)p->status_code;
	h.len = (uint32_t)len;
	reader->head_done = true;
	return reader->ops->head(reader->arg, &h);
}

/* Buffer the head until it is complete. @return bytes consumed, or -errno. */
static int64_t hold_head(struct kvr_http_reader *reader, const char *data, size_t len)
{
	const uint32_t room = KVR_HTTP_MAX_HEAD - reader->held_len, had = reader->held_len;
	size_t end;
	int rc;

	if (reader->held == NULL)
		reader->held = malloc(KVR_HTTP_MAX_HEAD);
	if (reader->held == NULL)
		return -ENOMEM;
	len = len < room ? len : room;
	memcpy(reader->held + had, data, len);
	end = head_end(reader->held, had < 2 ? 0 : had - 2, had + len);
	if (end == 0) {
		reader->held_len += (uint32_t)len;
		return reader->held_len < KVR_HTTP_MAX_HEAD ? (int64_t)len : -E2BIG;
	}
	reader->held_len = 0;
	rc = take_head(reader, reader->held, end);
	return rc < 0 ? rc : (int64_t)end - had;
}

static int64_t add_head(struct kvr_http_reader *reader, const char *data, size_t len)
{
	const size_t most = len < KVR_HTTP_MAX_HEAD ? len : KVR_HTTP_MAX_HEAD;
	const size_t end = reader->held_len == 0 ? head_end(data, 0, most) : 0;
	int rc;

	if (end == 0)
		return hold_head(reader, data, len);
	rc = take_head(reader, data, end);
	return rc < 0 ? rc : (int64_t)end;
}

static int64_t add_content(struct kvr_http_reader *reader, const char *data, size_t len)
{
	const size_t n = http_parser_execute(parser_of(reader), &content_calls, data, len);

	if (reader->err != 0)
		return reader->err;
	return reader->whole || HTTP_PARSER_ERRNO(parser_of(reader)) == HPE_OK ? (int64_t)n
									       : -EBADMSG;
}

int kvr_http_reader_add(struct kvr_http_reader *reader, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0 && !reader->whole) {
		const int64_t n =
			reader->head_done ? add_content(reader, p, len) : add_head(reader, p, len);

		if (n < 0) {
			reader->whole = false;
			return (int)n;
		}
		p += n;
		len -= (size_t)n;
	}
	reader->surplus |= len > 0;
	return reader->whole;
}

int kvr_http_reader_end(struct kvr_http_reader *reader)
{
	if (reader->head_done && !reader->whole)
		http_parser_execute(parser_of(reader), &content_calls, NULL, 0);
	reader->keep = false;
	return reader->whole ? 1 : reader->err != 0 ? reader->err : -EPIPE;
}

bool kvr_http_reader_keeps(const struct kvr_http_reader *reader)
{
	return reader->whole && reader->keep && !reader->surplus;
}

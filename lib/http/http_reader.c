/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The grammar of heads, lengths and chunks is http_parser's. It is given a head in one piece, so
 * that names and values are, and what comes behind it as it comes.
 */
#include "kvr_http_reader.h"

#include "http_pvt.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(http_parser) <= sizeof(((struct kvr_http_reader *)0)->parser),
	      "the parser lies in the reader");

/* While a head is read. */
struct head_parse {
	struct kvr_http__parse parse; /* first: what the shared callbacks see */
	struct kvr_http_reader *r;
};

static http_parser *parser_of(struct kvr_http_reader *r)
{
	return (http_parser *)r->parser;
}

static bool is_bare(unsigned int status)
{
	return status < 200 || status == 204 || status == 304;
}

/* @return 1: nothing follows, whatever its fields say. */
static int on_head(http_parser *p)
{
	struct head_parse *s = p->data;

	s->parse.done = true;
	return s->r->bare || is_bare(p->status_code) ? 1 : 0;
}

/* Not 0: the parser stops behind the message. */
static int whole(struct kvr_http_reader *r, const http_parser *p)
{
	r->whole = true;
	r->keep = http_should_keep_alive(p) != 0;
	return 1;
}

static int on_head_whole(http_parser *p)
{
	return whole(((struct head_parse *)p->data)->r, p);
}

static int on_whole(http_parser *p)
{
	return whole(p->data, p);
}

static int on_body(http_parser *p, const char *at, size_t len)
{
	struct kvr_http_reader *r = p->data;

	r->err = r->ops->content(r->arg, at, len);
	return r->err != 0;
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

void kvr_http_reader_init(struct kvr_http_reader *r, const struct kvr_http_reader_ops *ops,
			  void *arg, bool is_head)
{
	*r = (struct kvr_http_reader){.ops = ops, .arg = arg, .bare = is_head};
	http_parser_init(parser_of(r), HTTP_RESPONSE);
}

void kvr_http_reader_fini(struct kvr_http_reader *r)
{
	free(r->held);
	r->held = NULL;
}

/* Where the head ends, 0: not in here. Lines may end with a line feed alone. */
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

/* Of codings none but chunked is known: what it makes of the content would not be told. */
static int check(const http_parser *p, const struct kvr_http_head *h)
{
	for (unsigned int i = 0; i < h->n_fields; i++)
		if (kvr_http_equals(h->fields[i].name, "transfer-encoding") &&
		    !kvr_http_equals(h->fields[i].value, "chunked"))
			return -EBADMSG;
	if (p->http_major != 1 || p->http_minor > 1 || p->status_code < 100 || p->status_code > 999)
		return -EBADMSG;
	return p->status_code == 101 ? -EPROTO : kvr_http__check_fields(h);
}

/* A whole head of @p len bytes. */
static int take_head(struct kvr_http_reader *r, const char *data, size_t len)
{
	http_parser *p = parser_of(r);
	struct kvr_http_head h;
	struct head_parse s = {.parse = {.head = &h}, .r = r};
	size_t n;
	int rc;

	kvr_http__clear(&h);
	p->data = &s;
	n = http_parser_execute(p, &head_calls, data, len);
	p->data = r;
	if (s.parse.err != 0)
		return s.parse.err;
	if (!s.parse.done || n != len || (HTTP_PARSER_ERRNO(p) != HPE_OK && !r->whole))
		return -EBADMSG;
	rc = check(p, &h);
	if (rc < 0)
		return rc;
	if (p->status_code < 200) { /* the answer is still to come */
		r->whole = false;
		http_parser_init(p, HTTP_RESPONSE);
		return 0;
	}
	h.status = (uint16_t)p->status_code;
	h.len = (uint32_t)len;
	r->head_done = true;
	return r->ops->head(r->arg, &h);
}

/* Keep it until the head is whole. @return how many bytes were taken, or -errno. */
static int64_t hold(struct kvr_http_reader *r, const char *data, size_t len)
{
	const uint32_t room = KVR_HTTP_MAX_HEAD - r->held_len, had = r->held_len;
	size_t end;
	int rc;

	if (r->held == NULL)
		r->held = malloc(KVR_HTTP_MAX_HEAD);
	if (r->held == NULL)
		return -ENOMEM;
	len = len < room ? len : room;
	memcpy(r->held + had, data, len);
	end = head_end(r->held, had < 2 ? 0 : had - 2, had + len);
	if (end == 0) {
		r->held_len += (uint32_t)len;
		return r->held_len < KVR_HTTP_MAX_HEAD ? (int64_t)len : -E2BIG;
	}
	r->held_len = 0;
	rc = take_head(r, r->held, end);
	return rc < 0 ? rc : (int64_t)end - had;
}

static int64_t add_head(struct kvr_http_reader *r, const char *data, size_t len)
{
	const size_t most = len < KVR_HTTP_MAX_HEAD ? len : KVR_HTTP_MAX_HEAD;
	const size_t end = r->held_len == 0 ? head_end(data, 0, most) : 0;
	int rc;

	if (end == 0)
		return hold(r, data, len);
	rc = take_head(r, data, end);
	return rc < 0 ? rc : (int64_t)end;
}

static int64_t add_content(struct kvr_http_reader *r, const char *data, size_t len)
{
	const size_t n = http_parser_execute(parser_of(r), &content_calls, data, len);

	if (r->err != 0)
		return r->err;
	return r->whole || HTTP_PARSER_ERRNO(parser_of(r)) == HPE_OK ? (int64_t)n : -EBADMSG;
}

int kvr_http_reader_add(struct kvr_http_reader *r, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0 && !r->whole) {
		const int64_t n = r->head_done ? add_content(r, p, len) : add_head(r, p, len);

		if (n < 0) {
			r->whole = false;
			return (int)n;
		}
		p += n;
		len -= (size_t)n;
	}
	r->surplus |= len > 0;
	return r->whole;
}

int kvr_http_reader_end(struct kvr_http_reader *r)
{
	if (r->head_done && !r->whole)
		http_parser_execute(parser_of(r), &content_calls, NULL, 0);
	r->keep = false;
	return r->whole ? 1 : r->err != 0 ? r->err : -EPIPE;
}

bool kvr_http_reader_keeps(const struct kvr_http_reader *r)
{
	return r->whole && r->keep && !r->surplus;
}

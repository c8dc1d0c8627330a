/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merge the events of a stream into a tree. The context of a value decides how it is merged: at the
 * top of a chunk it is replaced; in a choice, arrays are joined; in a delta, strings too. All loops
 * over members and elements are bounded by MAX_CHILDREN.
 */
#include "fold_pvt.h"

#include <errno.h>
#include <stdlib.h>

#include "kvr_engine_usage.h"

#define MAX_CHILDREN 1024u
#define MAX_NODES    32768u

enum context { IN_CHUNK, IN_CHOICE, IN_DELTA };

struct kvr_engine_fold *kvr_engine_fold_create(const struct kvr_engine_fold_conf *conf)
{
	struct kvr_engine_fold *fold;

	errno = EINVAL;
	if (conf->api == KVR_ENGINE_OTHER || conf->max_bytes == 0)
		return NULL;
	fold = calloc(1, sizeof(*fold));
	if (fold == NULL)
		return NULL;
	fold->conf = *conf;
	fold->root.shape = FOLD_OBJECT;
	return fold;
}

static void free_children(struct fold_node *node)
{
	struct fold_node *child;

	while ((child = node->child) != NULL) {
		node->child = child->next;
		free_children(child);
		kvr_engine__free_buffer(&child->name);
		kvr_engine__free_buffer(&child->text);
		free(child);
	}
	node->n_children = 0;
}

void kvr_engine_fold_destroy(struct kvr_engine_fold *fold)
{
	if (fold == NULL)
		return;
	free_children(&fold->root);
	kvr_engine__free_buffer(&fold->answer);
	free(fold);
}

static int append_text(struct kvr_engine_fold *fold, struct kvr_engine_buffer *text, const char *p,
		       size_t len)
{
	if (len > fold->conf.max_bytes - fold->bytes)
		return -EMSGSIZE;
	if (!kvr_engine__append_bytes(text, p, len))
		return -ENOMEM;
	fold->bytes += len;
	return 0;
}

/* Change the shape of a node; the former value is lost. */
static void reset_node(struct kvr_engine_fold *fold, struct fold_node *node, enum fold_shape shape)
{
	free_children(node);
	fold->bytes -= node->text.len;
	node->text.len = 0;
	node->shape = shape;
}

/* @param after node to insert behind, or NULL: the first child. */
static int insert_child(struct kvr_engine_fold *fold, struct fold_node *parent,
			struct fold_node *after, struct fold_node **out)
{
	struct fold_node *child;

	if (parent->n_children == MAX_CHILDREN || fold->n_nodes == MAX_NODES)
		return -E2BIG;
	child = calloc(1, sizeof(*child));
	if (child == NULL)
		return -ENOMEM;
	child->next = after != NULL ? after->next : parent->child;
	*(after != NULL ? &after->next : &parent->child) = child;
	parent->n_children++;
	fold->n_nodes++;
	*out = child;
	return 0;
}

/* The member of this name, which is added if it is new. */
static int get_member(struct kvr_engine_fold *fold, struct fold_node *parent,
		      const struct kvr_json_value *name, struct fold_node **out)
{
	const char *p = name->p + 1;
	const size_t len = name->len - 2;
	struct fold_node *last = parent->child;
	int rc;

	*out = kvr_engine__find_child(parent, p, len);
	if (*out != NULL)
		return 0;
	while (last != NULL && last->next != NULL)
		last = last->next;
	rc = insert_child(fold, parent, last, out);
	return rc < 0 ? rc : append_text(fold, &(*out)->name, p, len);
}

/* The element of this index, which is added if it is new. */
static int get_element(struct kvr_engine_fold *fold, struct fold_node *parent, uint64_t index,
		       struct fold_node **out)
{
	struct fold_node *before = NULL, *child = parent->child;
	int rc;

	while (child != NULL && child->index < index) {
		before = child;
		child = child->next;
	}
	*out = child;
	if (child != NULL && child->index == index)
		return 0;
	rc = insert_child(fold, parent, before, out);
	if (rc < 0)
		return rc;
	(*out)->shape = FOLD_OBJECT;
	(*out)->index = index;
	return 0;
}

static bool is_name(const struct kvr_json_value *name, const char *text)
{
	return name->len == strlen(text) + 2 && memcmp(name->p + 1, text, name->len - 2) == 0;
}

static int merge_value(struct kvr_engine_fold *fold, struct fold_node *node,
		       const struct kvr_json_value *name, const struct kvr_json_value *value,
		       enum context context);

static int merge_members(struct kvr_engine_fold *fold, struct fold_node *node,
			 const struct kvr_json_value *object, enum context context)
{
	struct kvr_json_iter it = kvr_json_begin(object);
	struct kvr_json_value name, value;
	struct fold_node *member;
	int rc = 0;

	while (rc == 0 && kvr_json_next(&it, &name, &value)) {
		rc = get_member(fold, node, &name, &member);
		if (rc == 0)
			rc = merge_value(fold, member, &name, &value,
					 context == IN_CHOICE && is_name(&name, "delta") ? IN_DELTA
											 : context);
	}
	return rc;
}

static int replace_raw(struct kvr_engine_fold *fold, struct fold_node *node,
		       const struct kvr_json_value *value)
{
	reset_node(fold, node, FOLD_RAW);
	return append_text(fold, &node->text, value->p, value->len);
}

/* Choices, and the tool calls of one: each element is merged into the one with its index. An
 * element without an index is a new one. */
static int merge_elements(struct kvr_engine_fold *fold, struct fold_node *node,
			  const struct kvr_json_value *array, enum context context)
{
	struct kvr_json_iter it = kvr_json_begin(array);
	struct kvr_json_value name, value, v;
	struct fold_node *element;
	uint64_t index;
	int rc = 0;

	if (node->shape != FOLD_INDEXED)
		reset_node(fold, node, FOLD_INDEXED);
	while (rc == 0 && kvr_json_next(&it, &name, &value)) {
		if (value.type != KVR_JSON_OBJECT)
			return -EBADMSG;
		if (!kvr_json_get(&value, "index", &v) || kvr_json_u64(&v, &index) < 0)
			index = node->n_children;
		rc = get_element(fold, node, index, &element);
		if (rc == 0)
			rc = merge_members(fold, element, &value, context);
	}
	return rc;
}

static int join_array(struct kvr_engine_fold *fold, struct fold_node *node,
		      const struct kvr_json_value *array)
{
	struct kvr_json_iter it = kvr_json_begin(array);
	struct kvr_json_value name, first, last;
	int rc;

	if (node->shape != FOLD_ARRAY)
		reset_node(fold, node, FOLD_ARRAY);
	if (!kvr_json_next(&it, &name, &first))
		return 0;
	last = (struct kvr_json_value){.p = array->p, .len = array->len - 1};
	rc = node->text.len > 0 ? append_text(fold, &node->text, ",", 1) : 0;
	return rc < 0 ? rc
		      : append_text(fold, &node->text, first.p,
				    (size_t)(last.p + last.len - first.p));
}

/* Strings that name something come whole, in one chunk or in each. */
static bool is_label(const struct kvr_json_value *name)
{
	return is_name(name, "role") || is_name(name, "id") || is_name(name, "type") ||
	       is_name(name, "name");
}

static int merge_string(struct kvr_engine_fold *fold, struct fold_node *node,
			const struct kvr_json_value *name, const struct kvr_json_value *value,
			enum context context)
{
	const bool joined = (context == IN_DELTA && !is_label(name)) ||
			    (context == IN_CHOICE && is_name(name, "text"));

	if (!joined)
		return value->len == 2 && node->shape != FOLD_NULL ? 0
								   : replace_raw(fold, node, value);
	if (node->shape != FOLD_STRING)
		reset_node(fold, node, FOLD_STRING);
	return append_text(fold, &node->text, value->p + 1, value->len - 2);
}

static int merge_value(struct kvr_engine_fold *fold, struct fold_node *node,
		       const struct kvr_json_value *name, const struct kvr_json_value *value,
		       enum context context)
{
	if (value->type == KVR_JSON_NULL)
		return 0;
	if (context == IN_CHUNK && value->type == KVR_JSON_ARRAY && is_name(name, "choices"))
		return merge_elements(fold, node, value, IN_CHOICE);
	if (context == IN_CHUNK && value->type == KVR_JSON_OBJECT && is_name(name, "usage")) {
		reset_node(fold, node, FOLD_OBJECT);
		return merge_members(fold, node, value, IN_CHOICE);
	}
	if (context == IN_CHUNK)
		return replace_raw(fold, node, value);
	if (value->type == KVR_JSON_STRING)
		return merge_string(fold, node, name, value, context);
	if (value->type == KVR_JSON_ARRAY && context == IN_DELTA && is_name(name, "tool_calls"))
		return merge_elements(fold, node, value, context);
	if (value->type == KVR_JSON_ARRAY)
		return join_array(fold, node, value);
	if (value->type != KVR_JSON_OBJECT)
		return replace_raw(fold, node, value);
	if (node->shape != FOLD_OBJECT)
		reset_node(fold, node, FOLD_OBJECT);
	return merge_members(fold, node, value, context);
}

/* SGLang wraps the error of a stream in `error`, but not that of an answer. */
static int keep_error(struct kvr_engine_fold *fold, const struct kvr_json_value *root,
		      uint32_t status)
{
	struct kvr_json_value error, v;

	fold->status = (uint16_t)status;
	if (!kvr_json_get(root, "error", &error) || !kvr_json_get(&error, "object", &v))
		error = *root;
	return append_text(fold, &fold->answer, error.p, error.len);
}

static int add_response(struct kvr_engine_fold *fold, const struct kvr_json_value *root)
{
	struct kvr_json_value type, response;

	if (!kvr_json_get(root, "type", &type) || (!kvr_json_equals(&type, "response.completed") &&
						   !kvr_json_equals(&type, "response.incomplete") &&
						   !kvr_json_equals(&type, "response.failed")))
		return 0;
	if (!kvr_json_get(root, "response", &response) || response.type != KVR_JSON_OBJECT)
		return -EBADMSG;
	fold->done = true;
	fold->bytes -= fold->answer.len;
	fold->answer.len = 0;
	return append_text(fold, &fold->answer, response.p, response.len);
}

static int add_event(struct kvr_engine_fold *fold, const char *data, size_t len)
{
	struct kvr_json_value root, response;
	uint32_t status;

	if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
		fold->done = true;
		return 0;
	}
	fold->events++;
	if (kvr_json_parse(data, len, &root, NULL) < 0 || root.type != KVR_JSON_OBJECT)
		return -EBADMSG;
	if (fold->status != 0)
		return 0;
	status = kvr_engine_error_status(&root);
	if (status != 0 && !kvr_json_get(&root, "response", &response))
		return keep_error(fold, &root, status);
	if (fold->conf.api == KVR_ENGINE_RESPONSES)
		return add_response(fold, &root);
	return merge_members(fold, &fold->root, &root, IN_CHUNK);
}

int kvr_engine_fold_add(struct kvr_engine_fold *fold, const char *data, size_t len)
{
	if (fold->err == 0)
		fold->err = add_event(fold, data, len);
	return fold->err;
}

/* Whether each choice has ended, and there is one. */
static bool is_finished(const struct kvr_engine_fold *fold)
{
	const struct fold_node *choices = kvr_engine__find_child(&fold->root, "choices", 7);
	const struct fold_node *choice = choices != NULL ? choices->child : NULL, *reason;

	if (choice == NULL)
		return false;
	for (; choice != NULL; choice = choice->next) {
		reason = kvr_engine__find_child(choice, "finish_reason", 13);
		if (reason == NULL || reason->shape == FOLD_NULL)
			return false;
	}
	return true;
}

int64_t kvr_engine_fold_finish(struct kvr_engine_fold *fold, char **out, uint16_t *status)
{
	struct kvr_engine_buffer text = {0};
	int64_t len;

	*out = NULL;
	*status = fold->status != 0 ? fold->status : 200;
	if (fold->err != 0)
		return fold->err;
	if (fold->events == 0)
		return -ENODATA;
	if (fold->answer.len > 0) {
		text = fold->answer;
		fold->answer = (struct kvr_engine_buffer){0};
	} else if (fold->conf.api == KVR_ENGINE_RESPONSES || (!fold->done && !is_finished(fold))) {
		return -EPIPE;
	} else if (!kvr_engine__write_answer(fold, &text)) {
		kvr_engine__free_buffer(&text);
		return -ENOMEM;
	}
	*out = text.p;
	len = (int64_t)text.len;
	return len;
}

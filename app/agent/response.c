/* SPDX-License-Identifier: BSD-3-Clause */
/* Callbacks of the connection: pass the engine's answer to lib/engine. */
#include "job.h"

bool app_job_accepts(void *arg)
{
	const struct app_job *job = arg;

	return kvr_engine_answer_admits(&job->answer);
}

int app_job_on_head(void *arg, const struct kvr_http_head *h)
{
	struct app_job *job = arg;
	const int rc = kvr_engine_answer_head(&job->answer, h);

	job->status = h->status;
	if (rc == 0 && !job->prefill)
		app_job_hold_head(job);
	return rc;
}

int app_job_on_content(void *arg, const char *data, size_t len)
{
	struct app_job *job = arg;
	const int rc = kvr_engine_answer_content(&job->answer, data, len);

	if (rc == 0 && !job->prefill)
		app_job_mark_dirty(job);
	return rc;
}

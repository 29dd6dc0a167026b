id, tenant_id, app_id, user_id, purpose, job_id, conversation_id, model, provider, input_tokens, output_tokens, cost_usd,
created_at

id, user_id, agent_name, status, current_route, current_state, collected_data, message_count, last_message_at,
completed_at, created_at, updated_at, version, since

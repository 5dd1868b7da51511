"""The diagnosis benchmark: does the first finding name the cause that was planted?"""
